"""What a family is: the values it fixes in a `ModelShape`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from tpujob_trainer.parsing.from_mapping import Range


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Rotary frequencies stretched to a longer context, as Llama 3.1 does it; `linear` divides all of them."""

    factor: Annotated[float, Range(1, 1e6)]
    """Long wavelengths are stretched by this."""
    low_freq_factor: Annotated[float, Range(1e-3, 1e6)] = 1.0
    """Wavelengths above originalLength / lowFreqFactor are stretched in full."""
    high_freq_factor: Annotated[float, Range(1e-3, 1e6)] = 4.0
    """Wavelengths below originalLength / highFreqFactor stay as they are."""
    original_length: Annotated[int, Range(1, 1e9)] = 8192
    """Context the model was first trained with."""
    linear: bool = False
    """Divide every frequency by the factor instead."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model and the way it is usually trained; every value can be overridden in the `trainer` block."""

    layers: int
    embed_dim: int
    heads: int
    kv_heads: int
    mlp_dim: int
    family: str = "llama"
    head_dim: int | None = None
    vocab_size: int | None = None
    """None: as large as the tokenizer needs."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    remat: str = "full"
    sequence_length: int = 2048
    batch_tokens: int = 2**19
    """Tokens of a global batch where batchSize is not given. It does not depend on the number of devices, because the
    batches of a run must stay the same when it moves to other hardware."""
    learning_rate: float = 3e-4
    traits: Mapping[str, Any] = field(default_factory=dict)
    """More fields of `ModelShape`."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Decoders that differ in numbers only."""

    name: str
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ModelShape` that all its models share."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """By name, as their publisher's config.json has them."""
