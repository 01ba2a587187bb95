"""config.json to and from the shape of a decoder.

Both spellings of rotary positions are read: `rope_theta` with `rope_scaling`, and `rope_parameters`, which transformers
has written since version 5. What a decoder here cannot do is refused by the key that says it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.families import FAMILIES
from tpujob_trainer.model.families.base import RopeScaling
from tpujob_trainer.model.shape import TRAINING_ONLY, ModelShape

FAMILY_OF = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "mixtral": "mixtral",
    "qwen3_moe": "qwen3-moe",
}
"""Our family by `model_type`."""

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3-moe": "Qwen3MoeForCausalLM",
}

_ONLY = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "norm_topk_prob": (True, None),
    "decoder_sparse_step": (1, None),
    "mlp_only_layers": ([], None),
    "use_bidirectional_attention": (False, None),
    "hidden_act": ("silu", "gelu_pytorch_tanh", None),
    "hidden_activation": ("silu", "gelu_pytorch_tanh", None),
}
"""Keys whose other values mean something that is not computed here; None: not said."""


_NUMBERS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")


def shape_of(given: Mapping[str, Any], where: str, *, remat: str, compute_dtype: str) -> ModelShape:
    """The decoder that a config.json describes.

    Args:
        given: its content.
        where: the field and the file, for messages.
        remat: what the backward pass recomputes.
        compute_dtype: type of activations.

    Raises:
        ConfigurationError: naming the key of what a decoder here cannot do, or that is missing.
    """
    given = _text_part(given)
    family = FAMILY_OF.get(str(given.get("model_type")))
    if family is None:
        raise ConfigurationError(
            f"{where}: model_type {given.get('model_type')!r} is none of {', '.join(sorted(FAMILY_OF))}"
        )
    for key, allowed in _ONLY.items():
        if given.get(key) not in allowed:
            raise ConfigurationError(f"{where}: {key} is {given[key]!r}; only {allowed[0]!r} is supported")
    try:
        return _shape(given, family, where, remat=remat, compute_dtype=compute_dtype)
    except KeyError as error:
        raise ConfigurationError(f"{where}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _shape(given: Mapping[str, Any], family: str, where: str, *, remat: str, compute_dtype: str) -> ModelShape:
    for key in _NUMBERS:
        if not isinstance(given[key], int) or given[key] < 1:
            raise ValueError(f"{key} is {given[key]!r}, not a whole number")
    traits = dict(FAMILIES[family].traits)
    everywhere, local = _rotary(given, where)
    heads = given["num_attention_heads"]
    traits |= {
        "rope_theta": float(everywhere.get("rope_theta") or 10_000.0),
        "rope_scaling": _scaling(everywhere, where),
        "tie_embeddings": bool(given.get("tie_word_embeddings", traits.get("tie_embeddings", False))),
        **_windows(given, family, where),
    }
    if family == "gemma3":
        traits["local_rope_theta"] = float(local or 10_000.0)
    if "experts" in traits:
        traits["experts"] = given.get("num_experts") or given["num_local_experts"]
        traits["experts_per_token"] = given["num_experts_per_tok"]
    for ours, key in (("attention_softcap", "attn_logit_softcapping"), ("logit_softcap", "final_logit_softcapping")):
        if key in given:
            traits[ours] = given[key]
    if given.get("query_pre_attn_scalar"):
        traits["query_scale"] = float(given["query_pre_attn_scalar"]) ** -0.5
    return ModelShape(
        **traits,
        family=family,
        layers=given["num_hidden_layers"],
        embed_dim=given["hidden_size"],
        heads=heads,
        kv_heads=given.get("num_key_value_heads") or heads,
        head_dim=given.get("head_dim") or given["hidden_size"] // heads,
        mlp_dim=given["moe_intermediate_size" if family == "qwen3-moe" else "intermediate_size"],
        vocab_size=given["vocab_size"],
        norm_eps=given["rms_norm_eps"],
        remat=remat,
        compute_dtype=compute_dtype,
    )


def config_json(shape: ModelShape, *, dtype: str, max_positions: int) -> dict[str, Any]:
    """What `shape_of` reads, and transformers.

    Args:
        shape: of the decoder.
        dtype: of the stored weights.
        max_positions: the longest text it was trained on.
    """
    activation = "gelu_pytorch_tanh" if shape.activation == "gelu" else "silu"
    rope: dict[str, Any] = {"rope_theta": shape.rope_theta, "rope_type": "default"}
    if shape.rope_scaling is not None:
        rope |= _written_scaling(shape.rope_scaling)
    kinds = ["full_attention" if is_global else "sliding_attention" for is_global in shape.global_layers]
    made: dict[str, Any] = {
        "architectures": [ARCHITECTURES[shape.family]],
        "model_type": next(theirs for theirs, ours in FAMILY_OF.items() if ours == shape.family),
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.embed_dim,
        "intermediate_size": shape.mlp_dim,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "max_position_embeddings": max_positions,
        "tie_word_embeddings": shape.tie_embeddings,
        "rope_parameters": rope,
        "dtype": dtype,
        "hidden_activation" if shape.family.startswith("gemma") else "hidden_act": activation,
    }
    if shape.family != "mixtral":
        made["layer_types"] = kinds
    if shape.window is not None:
        made["sliding_window"] = shape.window
    elif shape.family in ("mistral", "mixtral"):
        made["sliding_window"] = None
    if shape.family.startswith("gemma"):
        made |= {
            "query_pre_attn_scalar": round(shape.score_scale**-2, 6),
            "attn_logit_softcapping": shape.attention_softcap,
            "final_logit_softcapping": shape.logit_softcap,
        }
    if shape.family == "qwen2" or shape.family.startswith("qwen3"):
        made["use_sliding_window"] = shape.window is not None
    if shape.local_rope_theta is not None:
        local = {"rope_theta": shape.local_rope_theta, "rope_type": "default"}
        made["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    if shape.experts is not None:
        made["num_experts_per_tok"] = shape.experts_per_token
        made["num_local_experts" if shape.family == "mixtral" else "num_experts"] = shape.experts
    if shape.family == "qwen3-moe":
        made |= {"moe_intermediate_size": shape.mlp_dim, "norm_topk_prob": True, "decoder_sparse_step": 1}
        made |= {"mlp_only_layers": []}
    return made


def _text_part(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a model that also sees images, the part that reads and writes."""
    return given["text_config"] if isinstance(given.get("text_config"), Mapping) else given


def _rotary(given: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], float | None]:
    """The parameters of layers that see everything, and the base of the others."""
    parameters = given.get("rope_parameters")
    if isinstance(parameters, Mapping) and "full_attention" in parameters:
        local = parameters.get("sliding_attention", {})
        if local.get("rope_type", "default") != "default":
            raise ConfigurationError(f"{where}: rope_parameters of sliding_attention are scaled; that is not supported")
        return parameters["full_attention"], local.get("rope_theta")
    if isinstance(parameters, Mapping):
        return parameters, given.get("rope_local_base_freq")
    scaling = given.get("rope_scaling") or {}
    return {"rope_theta": given.get("rope_theta"), **scaling}, given.get("rope_local_base_freq")


def _scaling(parameters: Mapping[str, Any], where: str) -> RopeScaling | None:
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(factor=float(parameters["factor"]), linear=True)
    if kind != "llama3":
        raise ConfigurationError(f"{where}: rope_type {kind!r} is none of default, linear, llama3")
    return RopeScaling(
        factor=float(parameters["factor"]),
        low_freq_factor=float(parameters["low_freq_factor"]),
        high_freq_factor=float(parameters["high_freq_factor"]),
        original_length=int(parameters["original_max_position_embeddings"]),
    )


def _written_scaling(scaling: RopeScaling) -> dict[str, Any]:
    if scaling.linear:
        return {"rope_type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_length,
    }


def _windows(given: Mapping[str, Any], family: str, where: str) -> dict[str, Any]:
    """Which layers see a window only: `layer_types`, or what the family does without."""
    window = given.get("sliding_window")
    if window is None or given.get("use_sliding_window") is False:
        return {"window": None, "global_every": None}
    kinds = given.get("layer_types")
    if kinds is None:
        every = given.get("sliding_window_pattern") or given.get("_sliding_window_pattern")
        return {"window": window, **({"global_every": every} if every else {})}
    is_global = tuple(kind == "full_attention" for kind in kinds)
    if all(is_global):
        return {"window": None, "global_every": None}
    every = is_global.index(True) + 1 if any(is_global) else None
    if is_global != tuple(every is not None and (at + 1) % every == 0 for at in range(len(is_global))):
        raise ConfigurationError(f"{where}: layer_types has no full_attention layer at equal distances: {kinds}")
    if every is None and family.startswith("gemma"):
        every = len(is_global) + 1
    return {"window": window, "global_every": every}


def is_close(one: ModelShape, other: ModelShape) -> bool:
    """Whether two shapes are the same decoder."""
    pairs = (
        (getattr(one, name), getattr(other, name))
        for name in one.__dataclass_fields__
        if name not in ("remat", *TRAINING_ONLY)
    )
    return all(
        math.isclose(a, b, rel_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b for a, b in pairs
    )
