"""Llama 2, 3 and 3.1 to 3.3: RMSNorm, rotary positions, grouped-query attention without biases, SwiGLU."""

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, RopeScaling
from tpujob_trainer.model.families.keys import COMMON, LLAMA_IDS, NO_BIAS

LLAMA = Family(
    name="llama",
    config=ConfigJson(
        model_type="llama",
        architecture="LlamaForCausalLM",
        defaults=COMMON
        | LLAMA_IDS
        | {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "head_dim": None,
            "max_position_embeddings": 2048,
            "attention_bias": False,
            "mlp_bias": False,
            "pretraining_tp": 1,
        },
        only=NO_BIAS | {"mlp_bias": (False,)},
    ),
    presets={
        # Touvron and others 2023, Llama 2, table 1; meta-llama/Llama-2-7b config.json.
        "llama2-7b": Preset(
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=32,
            mlp_dim=11008,
            vocab_size=32_000,
            sequence_length=4096,
            batch_tokens=2**22,
        ),
        # Grattafiori and others 2024, The Llama 3 Herd of Models, table 3; meta-llama/Meta-Llama-3-8B config.json.
        "llama3-8b": Preset(
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=8,
            mlp_dim=14336,
            vocab_size=128_256,
            rope_theta=500_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
        "llama3-70b": Preset(
            layers=80,
            embed_dim=8192,
            heads=64,
            kv_heads=8,
            mlp_dim=28672,
            vocab_size=128_256,
            rope_theta=500_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
            learning_rate=1.5e-4,
        ),
        # meta-llama/Llama-3.1-405B, Llama-3.1-8B and Llama-3.2-1B config.json; the learning rate is from table 3.
        "llama3.1-405b": Preset(
            layers=126,
            embed_dim=16384,
            heads=128,
            kv_heads=8,
            mlp_dim=53248,
            vocab_size=128_256,
            rope_theta=500_000.0,
            sequence_length=8192,
            batch_tokens=2**24,
            learning_rate=8e-5,
            traits={"rope_scaling": RopeScaling(factor=8.0)},
        ),
        "llama3.1-8b": Preset(
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=8,
            mlp_dim=14336,
            vocab_size=128_256,
            rope_theta=500_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
            traits={"rope_scaling": RopeScaling(factor=8.0)},
        ),
        "llama3.2-1b": Preset(
            layers=16,
            embed_dim=2048,
            heads=32,
            kv_heads=8,
            mlp_dim=8192,
            vocab_size=128_256,
            rope_theta=500_000.0,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**21,
            traits={"rope_scaling": RopeScaling(factor=32.0)},
        ),
    },
)
