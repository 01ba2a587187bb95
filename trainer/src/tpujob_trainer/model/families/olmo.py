"""OLMo 2: the output of each block is normalised, not its input.

Queries and keys are normalised over all heads at once (OLMo Team 2025, section 3).
"""

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset
from tpujob_trainer.model.families.keys import COMMON, NO_BIAS

OLMO2 = Family(
    name="olmo2",
    traits={"qk_norm": True, "wide_qk_norm": True, "post_norms": True, "pre_norms": False},
    config=ConfigJson(
        model_type="olmo2",
        architecture="Olmo2ForCausalLM",
        defaults=COMMON
        | {
            "vocab_size": 50304,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "max_position_embeddings": 2048,
            "pad_token_id": 1,
            "bos_token_id": None,
            "eos_token_id": 50279,
            "attention_bias": False,
            "rms_norm_eps": 1e-5,
        },
        only=NO_BIAS,
    ),
    presets={
        # allenai/OLMo-2-1124-7B and OLMo-2-0425-1B config.json.
        "olmo2-7b": Preset(
            family="olmo2",
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=32,
            mlp_dim=11008,
            vocab_size=100_352,
            rope_theta=500_000.0,
            norm_eps=1e-6,
            sequence_length=4096,
            batch_tokens=2**22,
        ),
        "olmo2-1b": Preset(
            family="olmo2",
            layers=16,
            embed_dim=2048,
            heads=16,
            kv_heads=16,
            mlp_dim=8192,
            vocab_size=100_352,
            rope_theta=500_000.0,
            norm_eps=1e-6,
            sequence_length=4096,
            batch_tokens=2**21,
        ),
    },
)
