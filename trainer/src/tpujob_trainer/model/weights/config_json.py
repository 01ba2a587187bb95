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
from tpujob_trainer.model.weights.family_configs import (
    ACTIVATIONS,
    FAMILY_CONFIGS,
    GELU,
    SILU,
    TEXT_OF,
    FamilyConfig,
    problem_with_keys,
)

ARCHITECTURES = {each.family: each.architecture for each in FAMILY_CONFIGS.values()}
MODEL_TYPES = {each.family: model_type for model_type, each in FAMILY_CONFIGS.items()}
"""By our family."""

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_NUMBERS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
_ROPE_VALUES = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""What each way to stretch rotary frequencies is told."""
_SOFTCAPS = {
    "gemma2": {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"},
    "gemma3": {"logit_softcap": "final_logit_softcapping"},
}
"""Those that transformers' models use; Gemma 3 has a key for the other one."""
FULL, SLIDING = "full_attention", "sliding_attention"


def shape_of(
    given: Mapping[str, Any], where: str, *, remat: str, compute_dtype: str, ignored: tuple[str, ...] = ()
) -> ModelShape:
    """The decoder that a config.json describes.

    Args:
        given: its content.
        where: the field and the file, for messages.
        remat: what the backward pass recomputes.
        compute_dtype: type of activations.
        ignored: keys that are not known, and that somebody decided to go on without.

    Raises:
        ConfigurationError: naming the key of what a decoder here cannot do, or does not know.
    """
    try:
        part, model_type = _text_part(given)
        problem = problem_with_keys(given, model_type, ignored) or problem_with_keys(part, model_type, ignored)
        if problem is not None:
            raise ConfigurationError(f"{where}: {problem}")
        return _shape({**FAMILY_CONFIGS[model_type].defaults, **part}, model_type, remat, compute_dtype)
    except KeyError as error:
        raise ConfigurationError(f"{where}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _text_part(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """What describes the decoder, of a model that also sees images, too; and its `model_type`."""
    outer = str(given.get("model_type"))
    inner = given.get("text_config")
    if outer not in TEXT_OF or not isinstance(inner, Mapping):
        if outer not in FAMILY_CONFIGS:
            raise ValueError(f"model_type {outer!r} is none of {', '.join(sorted({*FAMILY_CONFIGS, *TEXT_OF}))}")
        return given, outer
    model_type = str(inner.get("model_type", TEXT_OF[outer]))
    if model_type != TEXT_OF[outer]:
        raise ValueError(f"text_config.model_type is {model_type!r}; in {outer}, only {TEXT_OF[outer]!r} is supported")
    tied = inner.get("tie_word_embeddings", FAMILY_CONFIGS[model_type].defaults["tie_word_embeddings"])
    if given.get("tie_word_embeddings", tied) != tied:
        raise ValueError(f"tie_word_embeddings is {not tied}, and {tied} in text_config; make them the same")
    return inner, model_type


def _shape(given: Mapping[str, Any], model_type: str, remat: str, compute_dtype: str) -> ModelShape:
    of_family = FAMILY_CONFIGS[model_type]
    family = of_family.family
    mlp = "moe_intermediate_size" if family == "qwen3-moe" else "intermediate_size"
    for key in (*_NUMBERS, mlp):
        if type(given[key]) is not int or given[key] < 1:
            raise ValueError(f"{key} is {given[key]!r}, not a whole number")
    heads, layers = given["num_attention_heads"], given["num_hidden_layers"]
    is_gemma = family.startswith("gemma")
    traits = dict(FAMILIES[family].traits)
    traits |= _rotary(given, model_type)
    traits["tie_embeddings"] = _flag(given, "tie_word_embeddings")
    traits |= _windows(given, model_type)
    activation = given[of_family.activation_key]
    if activation not in ACTIVATIONS:
        allowed = GELU if is_gemma else SILU
        raise ValueError(f"{of_family.activation_key} is {activation!r}; {' or '.join(allowed)} is supported")
    traits["activation"] = ACTIVATIONS[activation]
    if of_family.experts_key is not None:
        names = ("num_experts", "num_local_experts")
        said = {given[name] for name in names if name in given and name != of_family.experts_key}
        traits["experts"] = said.pop() if said else given[of_family.experts_key]
        traits["experts_per_token"] = given["num_experts_per_tok"]
    if is_gemma:
        for ours, key in _SOFTCAPS[family].items():
            traits[ours] = None if given[key] is None else _positive(given, key)
        traits["query_scale"] = _positive(given, "query_pre_attn_scalar") ** -0.5
    kv_heads, head_dim = given["num_key_value_heads"], given.get("head_dim")
    return ModelShape(
        **traits,
        family=family,
        layers=layers,
        embed_dim=given["hidden_size"],
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=given["hidden_size"] // heads if head_dim is None else head_dim,
        mlp_dim=given[mlp],
        vocab_size=given["vocab_size"],
        norm_eps=_positive(given, "rms_norm_eps"),
        remat=remat,
        compute_dtype=compute_dtype,
    )


def _flag(given: Mapping[str, Any], key: str) -> bool:
    if given[key] not in (True, False):
        raise ValueError(f"{key} is {given[key]!r}, neither true nor false")
    return bool(given[key])


def _positive(given: Mapping[str, Any], key: str) -> float:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{key} is {value!r}, not a number above 0")
    return float(value)


def _rotary(given: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Bases and scaling, by transformers' order: `rope_scaling`, then `rope_parameters`, then what stands beside."""
    parameters, scaling = given.get("rope_parameters") or {}, given.get("rope_scaling") or {}
    theta = given.get("rope_theta", FAMILY_CONFIGS[model_type].theta)
    if model_type != "gemma3_text":
        base, found = _rope_values({"rope_theta": theta} | dict(scaling or parameters), given)
        return {"rope_theta": base, "rope_scaling": found}
    if unknown := sorted(parameters.keys() - {FULL, SLIDING}):
        raise ValueError(f"rope_parameters.{unknown[0]}: {model_type} has {FULL} and {SLIDING} there, and nothing else")
    if scaling and "rope_type" not in scaling:
        raise ValueError(f"rope_scaling has no rope_type, without which releases of transformers differ: {scaling}")
    base, found = _rope_values({"rope_theta": theta} | dict(parameters.get(FULL) or {}) | dict(scaling), given)
    local = {"rope_theta": given.get("rope_local_base_freq", 10_000.0)} | dict(parameters.get(SLIDING) or {})
    local_base, stretched = _rope_values(local, given)
    if stretched is not None:
        raise ValueError(f"rope_parameters of {SLIDING} are scaled; that is not supported")
    return {"rope_theta": base, "rope_scaling": found, "local_rope_theta": local_base}


def _rope_values(values: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in _ROPE_VALUES:
        raise ValueError(f"rope_type {kind!r} is none of {', '.join(_ROPE_VALUES)}")
    known = {"rope_theta", "rope_type", "type", *(key for keys in _ROPE_VALUES.values() for key in keys)}
    if unknown := [key for key in values if key not in known and values[key] is not None]:
        raise ValueError(f"{unknown[0]} of the rotary positions is {values[unknown[0]]!r}, which is not supported")
    base = _positive(values, "rope_theta")
    if kind == "default":
        return base, None
    if kind == "linear":
        return base, RopeScaling(factor=_positive(values, "factor"), linear=True)
    original = {"original_max_position_embeddings": given["max_position_embeddings"]} | dict(values)
    return base, RopeScaling(
        factor=_positive(values, "factor"),
        low_freq_factor=_positive(values, "low_freq_factor"),
        high_freq_factor=_positive(values, "high_freq_factor"),
        original_length=int(_positive(original, "original_max_position_embeddings")),
    )


def _windows(given: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Which layers see a window only, by what the family's class reads of it."""
    of_family, layers = FAMILY_CONFIGS[model_type], given["num_hidden_layers"]
    window = given.get("sliding_window") if "sliding_window" in of_family.defaults else None
    if "use_sliding_window" in of_family.defaults and not _flag(given, "use_sliding_window"):
        window = None
    kinds = given.get("layer_types")
    computed = [SLIDING if window is not None else FULL] * layers
    if of_family.has_layer_types:
        kinds = computed = kinds if kinds is not None else _usual_kinds(given, model_type, window)
    if kinds is not None and (len(kinds) != layers or {*kinds} - {FULL, SLIDING}):
        raise ValueError(f"layer_types is {kinds}; name {FULL} or {SLIDING} for each of the {layers} layers")
    if kinds is not None and [*kinds] != [*computed]:
        raise ValueError(f"layer_types is {kinds}, which makes it another model than {model_type}; leave it out")
    if SLIDING not in computed:
        return {"window": None, "global_every": None}
    if type(window) is not int or window < 1:
        raise ValueError(f"sliding_window is {window!r}, and layer_types has {SLIDING}; give the window")
    is_global = [kind == FULL for kind in computed]
    every = is_global.index(True) + 1 if any(is_global) else None
    if is_global != [every is not None and (at + 1) % every == 0 for at in range(layers)]:
        raise ValueError(f"layer_types has no {FULL} layer at equal distances: {computed}")
    return {"window": window, "global_every": layers + 1 if every is None and "gemma" in model_type else every}


def _usual_kinds(given: Mapping[str, Any], model_type: str, window: int | None) -> list[str]:
    """Where `layer_types` is left out."""
    layers = range(given["num_hidden_layers"])
    if model_type.startswith("qwen"):
        return [SLIDING if window is not None and at >= given["max_window_layers"] else FULL for at in layers]
    every = given.get("sliding_window_pattern", 6) if model_type == "gemma3_text" else 2
    if type(every) is not int or every < 1:
        raise ValueError(f"sliding_window_pattern is {every!r}, not a whole number")
    return [SLIDING if (at + 1) % every else FULL for at in layers]


def config_json(
    shape: ModelShape,
    *,
    dtype: str,
    max_positions: int,
    source: Mapping[str, Any] | None = None,
    ids: Mapping[str, int | None] | None = None,
) -> dict[str, Any]:
    """What `shape_of` reads, and transformers, 4.57 and 5 alike: what a source said, and all else that its class has.

    Args:
        shape: of the decoder.
        dtype: of the stored weights.
        max_positions: the longest text that a fresh model was trained on.
        source: config.json of the model that training started from.
        ids: of a fresh model, the tokens that begin and end a document.

    Raises:
        ConfigurationError: the family's configuration cannot say it.
    """
    model_type = MODEL_TYPES[shape.family]
    of_family = FAMILY_CONFIGS[model_type]
    if source is None:
        _refuse_what_cannot_be_said(shape, of_family)
    given = dict(source or {})
    if "text_config" in given:
        outer: dict[str, Any] = {key: given[key] for key in _IDS if key in given}
        given = {**outer, **given["text_config"]}
    fresh = {"max_position_embeddings": max_positions, **(ids or {})} if source is None else {}
    made = {**of_family.defaults, **fresh, **_dimensions(shape), **given}
    made |= {"model_type": model_type, "architectures": [of_family.architecture], "dtype": dtype, "torch_dtype": dtype}
    made |= _rope_both_ways(shape)
    made["vocab_size"] = shape.vocab_size
    scalar = made.get("query_pre_attn_scalar")
    if isinstance(scalar, float) and scalar.is_integer():
        made["query_pre_attn_scalar"] = int(scalar)
    if not of_family.has_layer_types:
        made.pop("layer_types", None)
    return made


def _refuse_what_cannot_be_said(shape: ModelShape, of_family: FamilyConfig) -> None:
    kinds = shape.global_layers
    if shape.window is not None and "sliding_window" not in of_family.defaults:
        raise ConfigurationError(
            f"spec.trainer.model.window: {of_family.architecture} of transformers has no window; leave export out, or "
            "choose family mistral"
        )
    if shape.window is not None and any(kinds) and not of_family.has_layer_types:
        raise ConfigurationError(
            f"spec.trainer.model.globalEvery: {of_family.architecture} of transformers has the same window in all "
            "layers; leave export out, or choose family qwen2 or qwen3"
        )


def _dimensions(shape: ModelShape) -> dict[str, Any]:
    of_family = FAMILY_CONFIGS[MODEL_TYPES[shape.family]]
    made: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.embed_dim,
        "intermediate_size": shape.mlp_dim,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tie_embeddings,
        of_family.activation_key: GELU[0] if shape.activation == "gelu" else SILU[0],
    }
    if of_family.has_layer_types:
        made["layer_types"] = [FULL if is_global else SLIDING for is_global in shape.global_layers]
    if shape.window is not None or "gemma" not in shape.family:
        made["sliding_window"] = shape.window
    if "use_sliding_window" in of_family.defaults:
        made["use_sliding_window"] = shape.window is not None
    if shape.family.startswith("gemma"):
        made |= {
            "query_pre_attn_scalar": round(shape.score_scale**-2, 6),
            "attn_logit_softcapping": shape.attention_softcap,
            "final_logit_softcapping": shape.logit_softcap,
        }
    if of_family.experts_key is not None:
        made |= {of_family.experts_key: shape.experts, "num_experts_per_tok": shape.experts_per_token}
    if shape.family == "qwen3-moe":
        made |= {"moe_intermediate_size": shape.mlp_dim, "norm_topk_prob": True}
    known = of_family.defaults.keys() | {"head_dim"}
    return {key: value for key, value in made.items() if key in known}


def _rope_both_ways(shape: ModelShape) -> dict[str, Any]:
    """`rope_parameters`, which transformers 5 reads, and what 4 reads."""
    scaling = None if shape.rope_scaling is None else _written_scaling(shape.rope_scaling)
    everywhere = {"rope_theta": shape.rope_theta, **(scaling or {"rope_type": "default"})}
    made = {"rope_theta": shape.rope_theta, "rope_scaling": scaling, "rope_parameters": everywhere}
    if shape.local_rope_theta is not None:
        local = {"rope_theta": shape.local_rope_theta, "rope_type": "default"}
        made["rope_parameters"] = {FULL: everywhere, SLIDING: local}
        made["rope_local_base_freq"] = shape.local_rope_theta
    return made


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


def is_close(one: ModelShape, other: ModelShape) -> bool:
    """Whether two shapes are the same decoder."""
    if not math.isclose(one.score_scale, other.score_scale, rel_tol=1e-6):
        return False
    pairs = (
        (getattr(one, name), getattr(other, name))
        for name in one.__dataclass_fields__
        if name not in ("remat", "query_scale", *TRAINING_ONLY)
    )
    return all(
        math.isclose(a, b, rel_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b for a, b in pairs
    )
