"""Qwen 2 and 2.5 (biases on queries, keys and values), Qwen 3 (queries and keys normalised instead), their mixtures.

Qwen 2's mixture has a shared expert in addition to the chosen ones: every token goes through it, and a gate scales its
output.
"""

from collections.abc import Iterator
from typing import Any

from tpujob_trainer.model.families import tensors
from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, Tensor
from tpujob_trainer.model.families.keys import (
    ALL_LAYERS_HAVE_EXPERTS,
    EXPERTS,
    FULL,
    NO_BIAS,
    QWEN,
    SLIDING,
    flag,
    from_max_window_layers,
    whole,
)

_MOE = QWEN | EXPERTS | {"hidden_size": 2048, "num_hidden_layers": 24, "decoder_sparse_step": 1, "mlp_only_layers": []}


def _qwen2_moe_tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    yield from tensors.layer_tensors(shape, layer)
    yield from tensors.feed_forward(("layers", "experts", "shared"), f"{layer}mlp.shared_expert.", wide="S")
    yield Tensor(("layers", "experts", "shared_gate"), f"{layer}mlp.shared_expert_gate.weight", "DO", "O D")


def _read_qwen2_moe(given: Any) -> dict[str, Any]:
    return {
        "qkv_bias": flag(given, "qkv_bias"),
        "shared_mlp_dim": whole(given, "shared_expert_intermediate_size"),
        "norm_topk": flag(given, "norm_topk_prob"),
    }


def _write_qwen2_moe(shape: Any) -> dict[str, Any]:
    return {
        "qkv_bias": shape.qkv_bias,
        "shared_expert_intermediate_size": shape.shared_mlp_dim,
        "norm_topk_prob": shape.norm_topk,
    }


def _every_other_until(given: Any, window: int | None) -> list[str]:
    layers = range(given["num_hidden_layers"])
    return [
        SLIDING if window is not None and at % 2 == 0 and at < given["max_window_layers"] else FULL for at in layers
    ]


QWEN2 = Family(
    name="qwen2",
    config=ConfigJson(
        model_type="qwen2",
        architecture="Qwen2ForCausalLM",
        has_layer_types=True,
        usual_layer_types=from_max_window_layers,
        defaults=QWEN | {"max_window_layers": 28, "layer_types": None},
    ),
    traits={"qkv_bias": True},
    presets={
        # Qwen/Qwen2.5-7B and Qwen2.5-0.5B config.json.
        "qwen2.5-7b": Preset(
            family="qwen2",
            layers=28,
            embed_dim=3584,
            heads=28,
            kv_heads=4,
            mlp_dim=18944,
            vocab_size=152_064,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
        "qwen2.5-0.5b": Preset(
            family="qwen2",
            layers=24,
            embed_dim=896,
            heads=14,
            kv_heads=2,
            mlp_dim=4864,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**21,
        ),
    },
)


def _qwen3(*, layers: int, embed_dim: int, heads: int, mlp_dim: int) -> Preset:
    return Preset(
        family="qwen3",
        layers=layers,
        embed_dim=embed_dim,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        mlp_dim=mlp_dim,
        vocab_size=151_936,
        rope_theta=1_000_000.0,
        norm_eps=1e-6,
        sequence_length=8192,
        batch_tokens=2**22,
    )


QWEN3 = Family(
    name="qwen3",
    config=ConfigJson(
        model_type="qwen3",
        architecture="Qwen3ForCausalLM",
        has_layer_types=True,
        usual_layer_types=from_max_window_layers,
        defaults=QWEN | {"max_window_layers": 28, "layer_types": None, "head_dim": 128, "attention_bias": False},
        only=NO_BIAS,
    ),
    traits={"qk_norm": True},
    presets={
        # Qwen/Qwen3-8B, Qwen3-14B and Qwen3-32B config.json.
        "qwen3-8b": _qwen3(layers=36, embed_dim=4096, heads=32, mlp_dim=12288),
        "qwen3-14b": _qwen3(layers=40, embed_dim=5120, heads=40, mlp_dim=17408),
        "qwen3-32b": _qwen3(layers=64, embed_dim=5120, heads=64, mlp_dim=25600),
    },
)

QWEN2_MOE = Family(
    name="qwen2-moe",
    traits={
        "qkv_bias": True,
        "experts": 60,
        "experts_per_token": 4,
        "norm_topk": False,
        "shared_mlp_dim": 5632,
        "shared_gate": True,
    },
    config=ConfigJson(
        model_type="qwen2_moe",
        architecture="Qwen2MoeForCausalLM",
        mlp_key="moe_intermediate_size",
        experts_key="num_experts",
        has_layer_types=True,
        usual_layer_types=_every_other_until,
        defaults=_MOE
        | {
            "intermediate_size": 5632,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "max_window_layers": 28,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts_per_tok": 4,
            "num_experts": 60,
            "norm_topk_prob": False,
            "qkv_bias": True,
            "layer_types": None,
        },
        only=ALL_LAYERS_HAVE_EXPERTS,
        read=_read_qwen2_moe,
        write=_write_qwen2_moe,
    ),
    layer_tensors=_qwen2_moe_tensors,
    presets={
        # Qwen/Qwen1.5-MoE-A2.7B config.json; mlp_dim is that of one chosen expert.
        "qwen1.5-moe-a2.7b": Preset(
            family="qwen2-moe",
            layers=24,
            embed_dim=2048,
            heads=16,
            kv_heads=16,
            mlp_dim=1408,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)

QWEN3_MOE = Family(
    name="qwen3-moe",
    traits={"qk_norm": True, "experts": 128, "experts_per_token": 8},
    config=ConfigJson(
        model_type="qwen3_moe",
        architecture="Qwen3MoeForCausalLM",
        mlp_key="moe_intermediate_size",
        experts_key="num_experts",
        defaults=_MOE
        | {
            "intermediate_size": 6144,
            "num_key_value_heads": 4,
            "attention_bias": False,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": False,
        },
        only=NO_BIAS | ALL_LAYERS_HAVE_EXPERTS | {"use_qk_norm": (True,)},
        read=lambda given: {"norm_topk": flag(given, "norm_topk_prob")},
        write=lambda shape: {"norm_topk_prob": shape.norm_topk},
    ),
    presets={
        # Qwen/Qwen3-30B-A3B config.json; mlp_dim is that of one expert.
        "qwen3-30b-a3b": Preset(
            family="qwen3-moe",
            layers=48,
            embed_dim=2048,
            heads=32,
            kv_heads=4,
            head_dim=128,
            mlp_dim=768,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
