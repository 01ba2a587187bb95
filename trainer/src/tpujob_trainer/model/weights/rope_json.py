"""Rotary positions in config.json, read and written in the forms of transformers 4 and 5.

In transformers, `rope_scaling` takes precedence, then `rope_parameters`, then the keys beside them.
"""

import math
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.model.families.base import ConfigJson, RopeScaling
from tpujob_trainer.model.families.keys import FULL, SLIDING, flag, mapping, positive
from tpujob_trainer.model.shape import ModelShape

_VALUES = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale"),
        *("mscale_all_dim", "truncate"),
    ),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
}
"""The keys that each kind of frequency scaling reads."""


def read_rope(given: Mapping[str, Any], config: ConfigJson, head_dim: int) -> dict[str, Any]:
    """The fields of `ModelShape` for rotary positions.

    Args:
        given: the keys, with the family's defaults.
        config: of the family.
        head_dim: width of a head.

    Raises:
        ValueError: a value is not supported.
    """
    parameters, scaling = mapping(given, "rope_parameters"), mapping(given, "rope_scaling")
    theta = given.get("rope_theta", config.theta)
    if config.model_type != "gemma3_text":
        values = {"rope_theta": theta} | dict(scaling or parameters)
        base, found = _values(values, given, config)
        share = values.get("partial_rotary_factor", given.get("partial_rotary_factor"))
        return {"rope_theta": base, "rope_scaling": found} | _turned_share(share, config, head_dim)
    if unknown := sorted(parameters.keys() - {FULL, SLIDING}):
        raise ValueError(f"rope_parameters.{unknown[0]}: {config.model_type} has {FULL} and {SLIDING}, nothing else")
    if scaling and "rope_type" not in scaling:
        raise ValueError(f"rope_scaling has no rope_type, without which releases of transformers differ: {scaling}")
    base, found = _values({"rope_theta": theta} | dict(mapping(parameters, FULL)) | dict(scaling), given, config)
    local = {"rope_theta": given.get("rope_local_base_freq", 10_000.0)} | dict(mapping(parameters, SLIDING))
    local_base, stretched = _values(local, given, config)
    if stretched is not None:
        raise ValueError(f"rope_parameters of {SLIDING} are scaled; that is not supported")
    return {"rope_theta": base, "rope_scaling": found, "local_rope_theta": local_base}


def _turned_share(share: Any, config: ConfigJson, head_dim: int) -> dict[str, Any]:
    if share is None or share == 1 or not config.has_partial_rotary:
        return {}
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"partial_rotary_factor is {share!r}, not a number above 0 and at most 1")
    turned = int(head_dim * share)
    if turned < 2 or turned % 2:
        raise ValueError(f"partial_rotary_factor is {share}, which turns {turned} of {head_dim} numbers, not pairs")
    return {"rotary_dim": turned}


def _values(
    values: Mapping[str, Any], given: Mapping[str, Any], config: ConfigJson
) -> tuple[float, RopeScaling | None]:
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in config.ropes:
        raise ValueError(f"rope_type {kind!r} is none of {', '.join(config.ropes)}")
    if config.model_type == "phi3" and kind in ("su", "yarn"):
        kind = "longrope"
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor", *_VALUES[kind]}
    others = {key for keys in _VALUES.values() for key in keys}
    if unknown := [key for key in values if key not in known | others and values[key] is not None]:
        raise ValueError(f"{unknown[0]} of the rotary positions is {values[unknown[0]]!r}, which is not supported")
    share = values.get("partial_rotary_factor")
    if share not in (None, 1) and not config.has_partial_rotary:
        raise ValueError(f"partial_rotary_factor is {share!r}; with model_type {config.model_type}, only 1 is read")
    base = positive(values, "rope_theta")
    return base, None if kind == "default" else _scaling(kind, values, given, config)


def _scaling(kind: str, values: Mapping[str, Any], given: Mapping[str, Any], config: ConfigJson) -> RopeScaling:
    length = int(positive(given, "max_position_embeddings"))
    if kind == "linear":
        return RopeScaling(factor=positive(values, "factor"), linear=True)
    if kind == "dynamic":
        return RopeScaling(kind="dynamic", factor=positive(values, "factor"), original_length=length)
    name = "original_max_position_embeddings"
    # The key beside the mapping takes precedence, except where mappings are nested by the kind of layer.
    is_beside = name in given and config.model_type != "gemma3_text"
    original = int(positive(given if is_beside else {name: length} | dict(values), name))
    if kind == "llama3":
        return RopeScaling(
            factor=positive(values, "factor"),
            low_freq_factor=positive(values, "low_freq_factor"),
            high_freq_factor=positive(values, "high_freq_factor"),
            original_length=original,
        )
    factor = length / original if values.get("factor") is None else positive(values, "factor")
    attention = values.get("attention_factor")
    if attention is not None:
        attention = positive(values, "attention_factor")
    if kind == "longrope":
        return RopeScaling(
            kind="longrope",
            factor=factor,
            original_length=original,
            attention_factor=attention,
            short_factors=_numbers(values, "short_factor"),
            long_factors=_numbers(values, "long_factor"),
        )
    if attention is None and values.get("mscale") and values.get("mscale_all_dim"):
        attention = _mscale(factor, positive(values, "mscale")) / _mscale(factor, positive(values, "mscale_all_dim"))
    truncate = flag({"truncate": True} | dict(values), "truncate")
    if not truncate and config.model_type == "gemma3_text":
        # transformers 5 looks for it beside the kinds of layers, where it belongs to neither.
        raise ValueError(
            "truncate is False; of gemma3_text, releases of transformers read it differently; leave it out"
        )
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_length=original,
        attention_factor=attention,
        beta_fast=values.get("beta_fast") or 32.0,
        beta_slow=values.get("beta_slow") or 1.0,
        truncate=truncate,
    )


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _numbers(values: Mapping[str, Any], key: str) -> tuple[float, ...]:
    listed = values[key]
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{key} is {listed!r}, not a list of numbers")
    return tuple(positive({key: each}, key) for each in listed)


def written_rope(shape: ModelShape, config: ConfigJson) -> dict[str, Any]:
    """The keys `rope_parameters`, which transformers 5 reads, and those that transformers 4 reads."""
    scaling = None if shape.rope_scaling is None else _written(shape.rope_scaling)
    if scaling and shape.latent is not None and shape.latent.score_factor != 1:
        # The only key that changes the scores: their factor is (0.1 · mscale_all_dim · log(factor) + 1)².
        weight = (math.sqrt(shape.latent.score_factor) - 1) / (0.1 * math.log(scaling["factor"]))
        scaling["mscale_all_dim"] = round(weight, 12)
    everywhere = {"rope_theta": shape.rope_theta, **(scaling or {"rope_type": "default"})}
    made: dict[str, Any] = {"rope_theta": shape.rope_theta, "rope_scaling": scaling, "rope_parameters": everywhere}
    if shape.local_rope_theta is not None:
        local = {"rope_theta": shape.local_rope_theta, "rope_type": "default"}
        made["rope_parameters"] = {FULL: everywhere, SLIDING: local}
        made["rope_local_base_freq"] = shape.local_rope_theta
    if shape.rope_scaling is not None and shape.rope_scaling.way == "dynamic":
        # The class has no other key for the length from which on the frequencies change.
        made["max_position_embeddings"] = shape.rope_scaling.original_length
    if config.has_partial_rotary:
        made["partial_rotary_factor"] = (shape.rotary_dim or shape.head_dim) / shape.head_dim
        everywhere["partial_rotary_factor"] = made["partial_rotary_factor"]
    if config.model_type == "phi3" and shape.rope_scaling is not None:
        # Phi-3's class of transformers 4 accepts only these three keys.
        made["original_max_position_embeddings"] = shape.rope_scaling.original_length
        three = {key: everywhere[key] for key in ("short_factor", "long_factor")}
        made["rope_scaling"] = {"type": "longrope", **three}
    return made


def _written(scaling: RopeScaling) -> dict[str, Any]:
    made: dict[str, Any] = {"rope_type": scaling.way, "factor": scaling.factor}
    if scaling.way in ("linear", "dynamic"):
        return made
    made["original_max_position_embeddings"] = scaling.original_length
    if scaling.way == "llama3":
        return made | {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    if scaling.attention_factor is not None:
        made["attention_factor"] = scaling.attention_factor
    if scaling.way == "yarn":
        made |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
        return made if scaling.truncate else made | {"truncate": False}
    assert scaling.short_factors is not None
    assert scaling.long_factors is not None
    return made | {"short_factor": [*scaling.short_factors], "long_factor": [*scaling.long_factors]}
