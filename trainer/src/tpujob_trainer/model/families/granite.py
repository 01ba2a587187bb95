"""Granite 3: Llama with factors of embeddings, scores, blocks' outputs and logits (Yang and others 2022, muP)."""

import dataclasses
from typing import Any

from tpujob_trainer.model.families.base import Family
from tpujob_trainer.model.families.keys import positive
from tpujob_trainer.model.families.llama import LLAMA

_FACTORS = {
    "embedding_multiplier": "embedding_factor",
    "residual_multiplier": "residual_factor",
    "logits_scaling": "logits_divisor",
    "attention_multiplier": "query_scale",
}


def _write(shape: Any) -> dict[str, Any]:
    return {key: getattr(shape, ours) for key, ours in _FACTORS.items()} | {"attention_multiplier": shape.score_scale}


GRANITE = Family(
    name="granite",
    config=dataclasses.replace(
        LLAMA.config,
        model_type="granite",
        architecture="GraniteForCausalLM",
        defaults=dict(LLAMA.config.defaults) | dict.fromkeys(_FACTORS, 1.0),
        read=lambda given: {ours: positive(given, key) for key, ours in _FACTORS.items()},
        write=_write,
    ),
)
