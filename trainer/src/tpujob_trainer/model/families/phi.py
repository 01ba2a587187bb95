"""Phi-3, 3.5 and 4: Llama with queries, keys and values in one stored matrix, and gate and up in another.

For longer contexts, each rotary frequency is divided by a separate number (LongRoPE, Ding and others 2024);
Phi-4-mini applies rotary positions to three quarters of each head.
"""

from collections.abc import Iterator
from typing import Any

from tpujob_trainer.model.families import tensors
from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, Tensor
from tpujob_trainer.model.families.keys import COMMON


def _tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    yield from tensors.norms(shape, layer)
    heads, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    path, rows = ("layers", "attention"), heads + 2 * kv
    fused = f"{layer}self_attn.qkv_proj.weight"
    yield Tensor((*path, "query"), fused, "DNH", "NH D", 0, rows)
    yield Tensor((*path, "key"), fused, "DKH", "KH D", heads, rows)
    yield Tensor((*path, "value"), fused, "DKH", "KH D", heads + kv, rows)
    yield Tensor((*path, "out"), f"{layer}self_attn.o_proj.weight", "NHD", "D NH")
    path, fused = ("layers", "mlp"), f"{layer}mlp.gate_up_proj.weight"
    yield Tensor((*path, "gate"), fused, "DF", "F D", 0, 2 * shape.mlp_dim)
    yield Tensor((*path, "up"), fused, "DF", "F D", shape.mlp_dim, 2 * shape.mlp_dim)
    yield Tensor((*path, "down"), f"{layer}mlp.down_proj.weight", "FD", "D F")


PHI3 = Family(
    name="phi3",
    config=ConfigJson(
        model_type="phi3",
        architecture="Phi3ForCausalLM",
        ropes=("default", "longrope", "su", "yarn"),
        has_partial_rotary=True,
        defaults=COMMON
        | {
            "vocab_size": 32064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "bos_token_id": 1,
            "eos_token_id": 32000,
            "pad_token_id": 32000,
            "sliding_window": None,
        },
        # Published files name them; the class has no biases either way.
        only={"attention_bias": (False,), "lm_head_bias": (False,), "mlp_bias": (False,), "full_attn_mod": (1,)},
    ),
    layer_tensors=_tensors,
    presets={
        # microsoft/Phi-3-mini-4k-instruct and microsoft/phi-4 config.json.
        "phi3-mini-4k": Preset(
            family="phi3",
            layers=32,
            embed_dim=3072,
            heads=32,
            kv_heads=32,
            mlp_dim=8192,
            vocab_size=32_064,
            sequence_length=4096,
            batch_tokens=2**22,
            traits={"window": 2047},
        ),
        "phi-4": Preset(
            family="phi3",
            layers=40,
            embed_dim=5120,
            heads=40,
            kv_heads=10,
            mlp_dim=17920,
            vocab_size=100_352,
            rope_theta=250_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
