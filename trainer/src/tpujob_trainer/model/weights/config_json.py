"""Conversion between config.json and the shape of a decoder.

Unsupported features are refused, with the name of their key. The keys that a family's class reads are in its file in
`model/families`.
"""

from collections.abc import Mapping
from typing import Any

from tpujob_trainer.model.families import FAMILIES
from tpujob_trainer.model.families.base import ConfigJson
from tpujob_trainer.model.families.keys import FULL, SLIDING, flag, positive, whole
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.known_keys import CONFIGS, FAMILY_OF, SAME_AS, TEXT_OF, problem_with_keys
from tpujob_trainer.model.weights.rope_json import read_rope, written_rope
from tpujob_trainer.values.errors import ConfigurationError

_SILU, _GELU = ("silu", "swish"), ("gelu_pytorch_tanh", "gelu_new")
_ACTIVATIONS = dict.fromkeys(_SILU, "silu") | dict.fromkeys(_GELU, "gelu")
"""By their names in transformers."""
MOST_LAYERS = 1000
MOST_CHARACTERS = 1000
"""Limit of a refusal's length: keys of a file may be of any length."""


def shape_of(
    given: Mapping[str, Any], where: str, *, remat: str, compute_dtype: str, ignored: tuple[str, ...] = ()
) -> ModelShape:
    """The decoder that a config.json describes.

    Raises:
        ConfigurationError: a key is unknown, or its value is not supported; the message names it.
    """
    try:
        part, model_type = _text_part(given)
        problem = problem_with_keys(given, model_type, ignored) or problem_with_keys(part, model_type, ignored)
        if problem is not None:
            raise ConfigurationError(f"{where}: {problem[:MOST_CHARACTERS]}")
        said = {key: value for key, value in part.items() if key != "rope_parameters" or value is not None}
        return _shape({**CONFIGS[model_type].defaults, **said}, model_type, remat, compute_dtype)
    except KeyError as error:
        raise ConfigurationError(f"{where}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{where}: {str(error)[:MOST_CHARACTERS]}") from error


def _text_part(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The part that describes the decoder, also for models with images; and its `model_type`."""
    outer = str(given.get("model_type"))
    outer = SAME_AS.get(outer, outer)
    inner = given.get("text_config")
    if outer not in TEXT_OF or not isinstance(inner, Mapping):
        if outer not in CONFIGS:
            raise ValueError(f"model_type {outer!r} is none of {', '.join(sorted({*CONFIGS, *TEXT_OF, *SAME_AS}))}")
        return given, outer
    model_type = str(inner.get("model_type", TEXT_OF[outer]))
    if model_type != TEXT_OF[outer]:
        raise ValueError(f"text_config.model_type is {model_type!r}; in {outer}, only {TEXT_OF[outer]!r} is supported")
    tied = inner.get("tie_word_embeddings", CONFIGS[model_type].defaults["tie_word_embeddings"])
    if given.get("tie_word_embeddings", tied) != tied:
        raise ValueError(f"tie_word_embeddings is {not tied}, and {tied} in text_config; make them the same")
    return inner, model_type


def _shape(given: Mapping[str, Any], model_type: str, remat: str, compute_dtype: str) -> ModelShape:
    config, family = CONFIGS[model_type], FAMILY_OF[model_type]
    layers = whole(given, "num_hidden_layers", most=MOST_LAYERS)  # first: others have a value for each
    embed_dim, heads = whole(given, "hidden_size"), whole(given, "num_attention_heads")
    kv_heads, head_dim = given["num_key_value_heads"], given.get("head_dim")
    head_dim = embed_dim // heads if head_dim is None else whole(given, "head_dim")
    traits = dict(FAMILIES[family].traits) | {"tie_embeddings": flag(given, "tie_word_embeddings")}
    traits |= config.read(given) | read_rope(given, config, head_dim) | _windows(given, config)
    traits["activation"] = _activation(given, config)
    if config.experts_key is not None:
        traits["experts"] = _experts(given, config.experts_key)
        traits["experts_per_token"] = whole(given, "num_experts_per_tok")
    dimensions = {
        "layers": layers,
        "embed_dim": embed_dim,
        "heads": heads,
        "kv_heads": heads if kv_heads is None else whole(given, "num_key_value_heads"),
        "head_dim": head_dim,
        "mlp_dim": whole(given, config.mlp_key),
        "vocab_size": whole(given, "vocab_size"),
        "norm_eps": positive(given, "rms_norm_eps"),
    }
    return ModelShape(family=family, remat=remat, compute_dtype=compute_dtype, **dimensions | traits)


def _activation(given: Mapping[str, Any], config: ConfigJson) -> str:
    name = given[config.activation_key]
    found = config.activations.get(name) or _ACTIVATIONS.get(name)
    if found is None:
        allowed = _GELU if str(config.defaults[config.activation_key]).startswith("gelu") else _SILU
        raise ValueError(f"{config.activation_key} is {name!r}; {' or '.join(allowed)} is supported")
    return found


def _experts(given: Mapping[str, Any], key: str) -> int:
    """The number of experts, which has two names; a file may have the one that the class does not write."""
    names = ("num_experts", "num_local_experts")
    others = [name for name in names if name != key] if key in names else names[1:]
    said = [name for name in others if name in given]
    return whole(given, said[0] if said else key)


def _windows(given: Mapping[str, Any], config: ConfigJson) -> dict[str, Any]:
    """The fields for layers with a window, from the keys that the family's class reads."""
    layers = whole(given, "num_hidden_layers")
    window = given.get("sliding_window") if "sliding_window" in config.defaults else None
    if "use_sliding_window" in config.defaults and not flag(given, "use_sliding_window"):
        window = None
    kinds = given.get("layer_types")
    computed = [SLIDING if window is not None else FULL] * layers
    if config.usual_layer_types is not None:
        kinds = computed = kinds if kinds is not None else config.usual_layer_types(given, window)
    if kinds is not None and (len(kinds) != layers or {*kinds} - {FULL, SLIDING}):
        raise ValueError(f"layer_types is {kinds}; name {FULL} or {SLIDING} for each of the {layers} layers")
    if kinds is not None and [*kinds] != [*computed]:
        raise ValueError(f"layer_types is {kinds}, which makes it another model than {config.model_type}; leave it out")
    if SLIDING not in computed:
        return {"window": None, "global_every": None}
    if type(window) is not int or window < 1:
        raise ValueError(f"sliding_window is {window!r}, and layer_types has {SLIDING}; give the window")
    is_global = [kind == FULL for kind in computed]
    every = is_global.index(True) + 1 if any(is_global) else None
    if is_global != [every is not None and (at + 1) % every == 0 for at in range(layers)]:
        raise ValueError(f"layer_types has no {FULL} layer at equal distances: {computed}")
    usual = FAMILIES[FAMILY_OF[config.model_type]].traits.get("global_every")
    return {"window": window, "global_every": layers + 1 if every is None and usual else every}


def config_json(
    shape: ModelShape,
    *,
    dtype: str,
    max_positions: int,
    source: Mapping[str, Any] | None = None,
    ids: Mapping[str, int | None] | None = None,
) -> dict[str, Any]:
    """A config.json for `shape_of` and for transformers 4.57 and 5: the source's keys, and the other keys of its class.

    Args:
        shape: of the decoder.
        dtype: of the stored weights.
        max_positions: the longest text that a fresh model was trained on.
        source: config.json of the model that training started from.
        ids: for a fresh model, the tokens that begin and end a document.

    Raises:
        ConfigurationError: the family's configuration cannot express the shape.
    """
    config = FAMILIES[shape.family].config
    if source is None:
        _refuse_what_cannot_be_said(shape, config)
    given = dict(source or {})
    types = {"dtype": dtype, "torch_dtype": dtype}
    if "text_config" in given:
        # The decoder's part has nothing that training changed.
        given["text_config"] = {**given["text_config"], **types}
        given.pop("quantization_config", None)
        return {**given, **types}
    fresh = {"max_position_embeddings": max_positions, **(ids or {})} if source is None else {}
    made = {**config.defaults, **fresh, **_dimensions(shape), **given, **config.written}
    made |= {"model_type": config.model_type, "architectures": [config.architecture]}
    made |= {**types, **written_rope(shape, config)}
    made["vocab_size"] = shape.vocab_size
    scalar = made.get("query_pre_attn_scalar")
    if isinstance(scalar, float) and scalar.is_integer():
        made["query_pre_attn_scalar"] = int(scalar)
    made.pop("quantization_config", None)  # The written weights are not quantized.
    if not config.has_layer_types:
        made.pop("layer_types", None)
    return made


def _refuse_what_cannot_be_said(shape: ModelShape, config: ConfigJson) -> None:
    kinds = shape.global_layers
    if shape.window is not None and "sliding_window" not in config.defaults:
        raise ConfigurationError(
            f"spec.trainer.model.window: {config.architecture} of transformers has no window; leave export out, or "
            "choose family mistral"
        )
    if shape.local_rope_theta is not None and shape.rope_scaling is not None and not shape.rope_scaling.truncate:
        raise ConfigurationError(
            f"spec.trainer.model.ropeScaling.truncate: {config.architecture} of transformers ignores it; leave it out"
        )
    if shape.window is not None and any(kinds) and not config.has_layer_types:
        raise ConfigurationError(
            f"spec.trainer.model.globalEvery: {config.architecture} of transformers has the same window in all "
            "layers; leave export out, or choose family qwen2 or qwen3"
        )


def _dimensions(shape: ModelShape) -> dict[str, Any]:
    config = FAMILIES[shape.family].config
    made: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.embed_dim,
        "intermediate_size": shape.mlp_dim,
        config.mlp_key: shape.mlp_dim,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tie_embeddings,
        config.activation_key: _GELU[0] if shape.activation == "gelu" else _SILU[0],
    }
    if config.has_layer_types:
        made["layer_types"] = [FULL if is_global else SLIDING for is_global in shape.global_layers]
    if shape.window is not None or FAMILIES[shape.family].traits.get("window") is None:
        made["sliding_window"] = shape.window
    if "use_sliding_window" in config.defaults:
        made["use_sliding_window"] = shape.window is not None
    if config.experts_key is not None:
        made |= {config.experts_key: shape.experts, "num_experts_per_tok": shape.experts_per_token}
    known = config.defaults.keys() | {"head_dim"}
    return {key: value for key, value in (made | config.write(shape)).items() if key in known}
