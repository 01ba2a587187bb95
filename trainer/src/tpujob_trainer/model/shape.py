"""What the `model` block says, and the numbers that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.config_parsing import Range
from tpujob_trainer.model.presets import PRESETS, Preset

PresetName = Literal["tiny", "small", "llama2-7b", "llama3-8b", "llama3-70b", "mistral-7b"]
Remat = Literal["none", "dots", "full"]

VOCABULARY_MULTIPLE = 128
"""A derived vocabulary is rounded up to this: the lanes of a TPU register, and a size that divides over devices."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A preset, the dimensions one by one, or a preset with some of them replaced."""

    preset: PresetName | None = None
    """A model by name. Fields beside it replace the preset's."""
    layers: Annotated[int, Range(1, 1000)] | None = None
    """Number of decoder layers."""
    embed_dim: Annotated[int, Range(8, 65536)] | None = None
    """Width of the residual stream."""
    heads: Annotated[int, Range(1, 1024)] | None = None
    """Query heads."""
    kv_heads: Annotated[int, Range(1, 1024)] | None = None
    """Key and value heads; divides heads. Without a preset: as many as heads."""
    head_dim: Annotated[int, Range(2, 1024)] | None = None
    """Width of a head, even. Default: embedDim / heads."""
    mlp_dim: Annotated[int, Range(8, 524288)] | None = None
    """Width inside the feed-forward block. Without a preset: 8/3 of embedDim, rounded up to a multiple of 128."""
    vocab_size: Annotated[int, Range(2, 4194304)] | None = None
    """Rows of the embedding. Default: the tokenizer's size, rounded up to a multiple of 128."""
    rope_theta: Annotated[float, Range(1, 1e12)] | None = None
    """Base of the rotary frequencies. Without a preset: 10000."""
    norm_eps: Annotated[float, Range(1e-12, 1e-2)] | None = None
    """Added to the mean square in RMSNorm. Without a preset: 1e-5."""
    tie_embeddings: bool | None = None
    """Whether the output projection is the embedding. Without a preset: false."""
    remat: Remat | None = None
    """What the backward pass recomputes: none (fastest, most memory), dots (all but matrix products), full (a layer's
    inside). Without a preset: full."""
    compute_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of activations and of weights in use; the weights themselves stay float32. Default: bfloat16 on TPU and
    GPU, float32 on CPU."""

    def __post_init__(self) -> None:
        if self.preset is None:
            for key in ("layers", "embed_dim", "heads"):
                if getattr(self, key) is None:
                    camel = {"embed_dim": "embedDim"}.get(key, key)
                    raise ValueError(f"{camel}: required where there is no preset ({', '.join(PRESETS)})")
        self.resolve(vocabulary=2, platform="cpu")

    def resolve(self, *, vocabulary: int, platform: str) -> ModelShape:
        """The model's dimensions.

        Args:
            vocabulary: number of ids that the tokenizer produces.
            platform: jax's word for the devices: cpu, gpu, tpu.

        Raises:
            ValueError: two dimensions do not fit each other; the message begins with the key at fault.
        """
        base = PRESETS[self.preset] if self.preset else self._preset_of_dimensions()
        embed_dim, heads = self.embed_dim or base.embed_dim, self.heads or base.heads
        if self.head_dim is None and embed_dim % heads:
            raise ValueError(f"heads: {heads} does not divide embedDim ({embed_dim}); change one, or give headDim")
        vocab_size = self.vocab_size or base.vocab_size or _round_up(vocabulary, VOCABULARY_MULTIPLE)
        if vocab_size < vocabulary:
            raise ValueError(f"vocabSize: {vocab_size} is less than the tokenizer's {vocabulary} ids; leave it out")
        eps, tie = self.norm_eps, self.tie_embeddings
        return ModelShape(
            layers=self.layers or base.layers,
            embed_dim=embed_dim,
            heads=heads,
            kv_heads=self.kv_heads or (base.kv_heads if self.heads is None else heads),
            head_dim=self.head_dim or embed_dim // heads,
            mlp_dim=self.mlp_dim or (base.mlp_dim if self.embed_dim is None else _mlp_dim(embed_dim)),
            vocab_size=vocab_size,
            rope_theta=self.rope_theta or base.rope_theta,
            norm_eps=base.norm_eps if eps is None else eps,
            tie_embeddings=base.tie_embeddings if tie is None else tie,
            remat=self.remat or base.remat,
            compute_dtype=self.compute_dtype or ("float32" if platform == "cpu" else "bfloat16"),
        )

    def _preset_of_dimensions(self) -> Preset:
        assert self.layers is not None
        assert self.embed_dim is not None
        assert self.heads is not None
        return Preset(
            layers=self.layers,
            embed_dim=self.embed_dim,
            heads=self.heads,
            kv_heads=self.heads,
            mlp_dim=_mlp_dim(self.embed_dim),
        )


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Every dimension of the decoder, as a number."""

    layers: int
    embed_dim: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_dim: int
    vocab_size: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    remat: str = "full"
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"kvHeads: {self.kv_heads} does not divide heads ({self.heads})")
        if self.head_dim % 2:
            raise ValueError(f"headDim: {self.head_dim} is odd; rotary positions turn pairs, so it must be even")

    @property
    def num_parameters(self) -> int:
        """Weights of the model, embeddings and norms included."""
        attention = 2 * self.embed_dim * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.embed_dim * self.mlp_dim + 2 * self.embed_dim
        embeddings = self.vocab_size * self.embed_dim * (1 if self.tie_embeddings else 2)
        return self.layers * layer + embeddings + self.embed_dim


def _mlp_dim(embed_dim: int) -> int:
    return _round_up(math.ceil(embed_dim * 8 / 3), 128)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
