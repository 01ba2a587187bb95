"""Gemma 1, 2 and 3: scaled and tied embeddings.

Gemma 2 and 3 have norms before and after each block, and layers with a sliding window.

Gemma 2 caps attention scores and logits (Gemma Team 2024, section 2); Gemma 3 normalises queries and keys instead, and
has another rotary base for windowed layers (Gemma Team 2025, section 2). The scale of a norm is stored as its
difference from one.
"""

from typing import Any

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, RopeScaling
from tpujob_trainer.model.families.keys import COMMON, FULL, NO_BIAS, SLIDING, alternating, positive

_FIRST = {"activation": "gelu", "zero_centered_norms": True, "scaled_embedding": True, "tie_embeddings": True}
_COMMON = _FIRST | {"post_norms": True}
_KEYS = {key: value for key, value in COMMON.items() if key != "hidden_act"} | {
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "tie_word_embeddings": True,
    "head_dim": 256,
    "attention_bias": False,
}
_SINCE_2 = _KEYS | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "use_bidirectional_attention": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
_ONLY = NO_BIAS | {"use_bidirectional_attention": (False, None)}


def _read(given: Any, *caps: str) -> dict[str, Any]:
    """The scale of scores, and the softcaps that the class computes: Gemma 3 has a key for one that it ignores."""
    names = {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}
    found = {ours: None if given[key] is None else positive(given, key) for ours, key in names.items() if ours in caps}
    return found | {"query_scale": positive(given, "query_pre_attn_scalar") ** -0.5}


def _write(shape: Any) -> dict[str, Any]:
    scalar = round(shape.score_scale**-2, 6)
    return {
        "query_pre_attn_scalar": int(scalar) if scalar.is_integer() else scalar,
        "attn_logit_softcapping": shape.attention_softcap,
        "final_logit_softcapping": shape.logit_softcap,
    }


def _one_in_six(given: Any, window: int | None) -> list[str]:
    every = given.get("sliding_window_pattern", 6)
    if type(every) is not int or every < 1:
        raise ValueError(f"sliding_window_pattern is {every!r}, not a whole number")
    return [SLIDING if (at + 1) % every else FULL for at in range(given["num_hidden_layers"])]


GEMMA = Family(
    name="gemma",
    traits=_FIRST,
    config=ConfigJson(
        model_type="gemma",
        architecture="GemmaForCausalLM",
        # Published files name the exact form, but mean the approximation.
        activations={"gelu": "gelu"},
        defaults=_KEYS
        | {
            "vocab_size": 256000,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "use_bidirectional_attention": None,
        },
        only=_ONLY,
    ),
    presets={
        # google/gemma-2b and gemma-7b config.json.
        "gemma-2b": Preset(
            family="gemma",
            layers=18,
            embed_dim=2048,
            heads=8,
            kv_heads=1,
            head_dim=256,
            mlp_dim=16384,
            vocab_size=256_000,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**21,
        ),
        "gemma-7b": Preset(
            family="gemma",
            layers=28,
            embed_dim=3072,
            heads=16,
            kv_heads=16,
            head_dim=256,
            mlp_dim=24576,
            vocab_size=256_000,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)

GEMMA2 = Family(
    name="gemma2",
    config=ConfigJson(
        model_type="gemma2",
        architecture="Gemma2ForCausalLM",
        activation_key="hidden_activation",
        has_layer_types=True,
        usual_layer_types=alternating,
        defaults=_SINCE_2
        | {
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "final_logit_softcapping": 30.0,
            "attn_logit_softcapping": 50.0,
        },
        only=_ONLY,
        read=lambda given: _read(given, "attention_softcap", "logit_softcap"),
        write=_write,
    ),
    traits=_COMMON | {"attention_softcap": 50.0, "logit_softcap": 30.0, "window": 4096, "global_every": 2},
    presets={
        # google/gemma-2-9b config.json.
        "gemma2-9b": Preset(
            family="gemma2",
            layers=42,
            embed_dim=3584,
            heads=16,
            kv_heads=8,
            head_dim=256,
            mlp_dim=14336,
            vocab_size=256_000,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)

_STRETCHED: dict[str, Any] = {"rope_scaling": RopeScaling(factor=8.0, linear=True)}


def _gemma3(layers: int, embed_dim: int, heads: int, kv_heads: int, mlp_dim: int, **more: Any) -> Preset:
    usual: dict[str, Any] = {"head_dim": 256, "vocab_size": 262_208, "batch_tokens": 2**22, "traits": _STRETCHED}
    return Preset(
        family="gemma3",
        layers=layers,
        embed_dim=embed_dim,
        heads=heads,
        kv_heads=kv_heads,
        mlp_dim=mlp_dim,
        rope_theta=1_000_000.0,
        norm_eps=1e-6,
        tie_embeddings=True,
        sequence_length=8192,
        **usual | more,
    )


GEMMA3 = Family(
    name="gemma3",
    config=ConfigJson(
        model_type="gemma3_text",
        architecture="Gemma3ForCausalLM",
        theta=1_000_000.0,
        activation_key="hidden_activation",
        has_layer_types=True,
        usual_layer_types=_one_in_six,
        defaults=_SINCE_2 | {"vocab_size": 262208, "max_position_embeddings": 131072},
        only=_ONLY,
        read=lambda given: _read(given, "logit_softcap"),
        write=_write,
    ),
    traits=_COMMON | {"qk_norm": True, "window": 1024, "global_every": 6, "local_rope_theta": 10_000.0},
    presets={
        # google/gemma-3-1b-pt, and the text part of gemma-3-4b-pt, gemma-3-12b-pt and gemma-3-27b-pt config.json.
        "gemma3-1b": _gemma3(26, 1152, 4, 1, 6912, vocab_size=262_144, batch_tokens=2**21, traits={"window": 512}),
        "gemma3-4b": _gemma3(34, 2560, 8, 4, 10240),
        "gemma3-12b": _gemma3(48, 3840, 16, 8, 15360),
        "gemma3-27b": _gemma3(62, 5376, 32, 16, 21504, head_dim=128, traits=_STRETCHED | {"query_scale": 168**-0.5}),
    },
)
