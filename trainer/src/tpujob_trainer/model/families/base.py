"""The parts of a family: the values it fixes in a `ModelShape`, its presets, its config.json and its tensors."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tpujob_trainer.values.from_mapping import Range

RopeKind = Literal["llama3", "linear", "dynamic", "yarn", "longrope"]


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Rotary frequencies changed for a longer context."""

    factor: Annotated[float, Range(1, 1e6)]
    """Long wavelengths are stretched by this."""
    low_freq_factor: Annotated[float, Range(1e-3, 1e6)] = 1.0
    """With kind llama3: wavelengths above originalLength / lowFreqFactor are stretched in full."""
    high_freq_factor: Annotated[float, Range(1e-3, 1e6)] = 4.0
    """With kind llama3: wavelengths below originalLength / highFreqFactor stay as they are."""
    original_length: Annotated[int, Range(1, 1e9)] = 8192
    """Context the model was first trained with."""
    linear: bool = False
    """As kind: linear."""
    kind: RopeKind | None = None
    """How frequencies change: llama3 (long wavelengths stretched, short ones kept), linear (all divided by the
    factor), dynamic (a larger base for rows beyond originalLength), yarn (by the turns within originalLength),
    longrope (each divided by a number of its own). Default: linear where linear is true, else llama3."""
    beta_fast: Annotated[float, Range(1e-3, 1e6)] = 32.0
    """With kind yarn: frequencies that turn more often than this within originalLength stay as they are."""
    beta_slow: Annotated[float, Range(1e-3, 1e6)] = 1.0
    """With kind yarn: frequencies that turn less often than this are stretched in full."""
    truncate: bool = True
    """With kind yarn: the two bounds are rounded to whole frequencies."""
    attention_factor: Annotated[float, Range(0, 1e6)] | None = None
    """With kind yarn or longrope: what turned queries and keys are multiplied by. Default: by the kind's formula."""
    short_factors: tuple[Annotated[float, Range(1e-3, 1e6)], ...] | None = None
    """With kind longrope: divisors of the frequencies in rows of at most originalLength positions."""
    long_factors: tuple[Annotated[float, Range(1e-3, 1e6)], ...] | None = None
    """With kind longrope: divisors of the frequencies in longer rows."""

    def __post_init__(self) -> None:
        if self.way == "longrope" and not (self.short_factors and self.long_factors):
            raise ValueError("shortFactors: required with kind longrope, and so are longFactors; list both")

    @property
    def way(self) -> RopeKind:
        """The kind, with the default applied."""
        return self.kind or ("linear" if self.linear else "llama3")

    @property
    def magnitude(self) -> float:
        """The factor of cosine and sine.

        Peng and others 2023, YaRN, section 3.4; Ding and others 2024, LongRoPE, as in Phi-3.
        """
        if self.way not in ("yarn", "longrope"):
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1:
            return 1.0
        if self.way == "yarn":
            return 0.1 * math.log(self.factor) + 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Latent attention, whose queries, keys and values are projected from narrow vectors."""

    query_rank: int | None
    """Width of the narrow vector of queries; None: they are projected from the residual stream."""
    rank: int
    """Width of the narrow vector of keys and values."""
    value_dim: int
    """Width of a head's values."""
    adjacent_pairs: bool = True
    """Positions rotate the pairs (0, 1), (2, 3), ...; otherwise pairs at a distance of half the width."""
    score_factor: float = 1.0
    """Factor of the scores, in addition to 1 / sqrt(head_dim)."""


@dataclass(frozen=True, kw_only=True)
class SigmoidRouter:
    """A router that chooses experts by sigmoids of their scores, from a few of several groups."""

    groups: int = 1
    groups_per_token: int = 1
    scale: float = 1.0
    """Factor of the experts' weights."""


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
    """Tokens of a global batch if batchSize is not given. It does not depend on the number of devices, because the
    batches of a run must stay the same when it moves to other hardware."""
    learning_rate: float = 3e-4
    traits: Mapping[str, Any] = field(default_factory=dict)
    """More fields of `ModelShape`."""


@dataclass(frozen=True)
class Tensor:
    """One of our weights, and its place in the files of a model."""

    path: tuple[str, ...]
    """In our nested weights."""
    name: str
    """Of the stored tensor; with `{layer}` and `{expert}` if each has its own."""
    ours: str
    """Our axes, without those of the stack."""
    theirs: str
    """The same axes in the order of the stored tensor, its dimensions separated by spaces."""
    first: int = 0
    """First row of our weight, if a stored tensor is several weights, one below the other."""
    rows: int | None = None
    """Total rows of such a tensor; None: it is one weight."""
    layers: range | None = None
    """The layers that have it; None: all."""
    is_wide: bool = False
    """It is stored as float32, whatever the others are."""

    def places(self, layers: int) -> range:
        """The layers that have it, in a model of `layers` layers."""
        return range(layers) if self.layers is None else self.layers

    @property
    def is_stacked(self) -> bool:
        """Whether each layer has a tensor of its own."""
        return "{layer}" in self.name

    @property
    def has_experts(self) -> bool:
        """Whether each expert has a tensor of its own."""
        return "{expert}" in self.name


@dataclass(frozen=True, kw_only=True)
class ConfigJson:
    """The keys that a family's config.json may have, and the defaults of transformers for missing keys.

    A key is applied, without effect on what the model computes, allowed with some values only, or unknown, which is
    refused. `defaults` has every field of the configuration class of transformers: the class ignores other keys.
    """

    model_type: str
    architecture: str
    """The class of transformers that loads it."""
    defaults: Mapping[str, Any]
    """All keys that the class reads, except those of rotary positions."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values of keys, whose other values mean something that is not computed here."""
    without_effect: tuple[str, ...] = ()
    """Keys that files of the family have and that the class does not read."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """Keys that an export always has, regardless of its source."""
    theta: float = 10_000.0
    """Base of the rotary frequencies if none is given."""
    ropes: tuple[str, ...] = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
    """Values of `rope_type` that the class computes."""
    has_partial_rotary: bool = False
    """The class applies rotary positions to a part of each head, by `partial_rotary_factor`."""
    activation_key: str = "hidden_act"
    activations: Mapping[str, str] = field(default_factory=dict)
    """Names that only this class reads differently, with our names for them."""
    mlp_key: str = "intermediate_size"
    experts_key: str | None = None
    has_layer_types: bool = False
    """The class reads `layer_types`."""
    usual_layer_types: Callable[[Mapping[str, Any], int | None], list[str]] | None = None
    """From the keys and the window: the default of `layer_types`."""
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda given: {}
    """More fields of `ModelShape`, from the keys with their defaults."""
    write: Callable[[Any], dict[str, Any]] = lambda shape: {}
    """More keys, from the shape."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family: decoders that differ in numbers only."""

    name: str
    config: ConfigJson
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ModelShape` that all its models share."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """By name, as in their publisher's config.json."""
    layer_tensors: Callable[[Any, str], Iterator[Tensor]] | None = None
    """From the shape and the prefix of a layer's names: its tensors; None: as in most families."""
