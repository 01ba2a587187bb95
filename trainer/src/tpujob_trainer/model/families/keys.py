"""Keys of config.json that several families share, with the defaults of transformers 5.23's configuration classes."""

import sys
from collections.abc import Mapping
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"
"""Values of `layer_types`."""

COMMON: dict[str, Any] = {
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "use_cache": True,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "pad_token_id": None,
}
LLAMA_IDS = {"bos_token_id": 1, "eos_token_id": 2}
MISTRAL: dict[str, Any] = (
    COMMON
    | LLAMA_IDS
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": None,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }
)
QWEN: dict[str, Any] = (
    COMMON
    | dict.fromkeys(("bos_token_id", "eos_token_id"))
    | {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
    }
)
EXPERTS: dict[str, Any] = {"output_router_logits": False, "router_aux_loss_coef": 0.001}
NO_BIAS: dict[str, tuple[Any, ...]] = {"attention_bias": (False,)}
ALL_LAYERS_HAVE_EXPERTS: dict[str, tuple[Any, ...]] = {"decoder_sparse_step": (1,), "mlp_only_layers": ([], None)}


def flag(given: Mapping[str, Any], key: str) -> bool:
    """The value of a key that is true or false.

    Raises:
        ValueError: it is neither.
    """
    if given[key] not in (True, False):
        raise ValueError(f"{key} is {given[key]!r}, neither true nor false")
    return bool(given[key])


def mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The value of a key that is a mapping; empty if the key is missing or null.

    Raises:
        ValueError: it is neither.
    """
    value = given.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{key} is {value!r}, not a mapping")
    return value or {}


def positive(given: Mapping[str, Any], key: str) -> float:
    """The value of a key that is a number above 0.

    Raises:
        ValueError: it is not.
    """
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{key} is {value!r}, not a number above 0")
    return float(value)


def whole(given: Mapping[str, Any], key: str, *, most: int = 2**31) -> int:
    """The value of a key that is a whole number from 1 to `most`.

    Raises:
        ValueError: it is not.
    """
    value = given[key]
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{key} is {value!r}, not a whole number from 1 to {most}")
    return value


def alternating(given: Mapping[str, Any], window: int | None) -> list[str]:
    """Alternating windowed and full layers."""
    return [FULL if at % 2 else SLIDING for at in range(given["num_hidden_layers"])]


def from_max_window_layers(given: Mapping[str, Any], window: int | None) -> list[str]:
    """Layers windowed from `max_window_layers` on, as in Qwen 2 and 3."""
    layers = range(given["num_hidden_layers"])
    return [SLIDING if window is not None and at >= given["max_window_layers"] else FULL for at in layers]
