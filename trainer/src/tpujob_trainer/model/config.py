"""The `model` block and its presets, and the dimensions that follow from it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tpujob_trainer.model.families import FAMILIES, FAMILY_PRESETS
from tpujob_trainer.model.families.base import Preset, RopeScaling
from tpujob_trainer.model.shape import TRAINING_ONLY, ModelShape, Quantization, Remat, RematName
from tpujob_trainer.values.from_mapping import Range, camel_case
from tpujob_trainer.values.references import require_reference

PRESETS: dict[str, Preset] = {
    # Two to three minutes on a laptop are enough to see it learn. Everything is kept for the backward pass.
    "tiny": Preset(
        layers=4,
        embed_dim=128,
        heads=4,
        kv_heads=2,
        mlp_dim=384,
        tie_embeddings=True,
        remat="none",
        sequence_length=128,
        batch_tokens=16 * 128,
        learning_rate=3e-3,
    ),
    # About 100 million parameters with a vocabulary of 32 000; an hour on one TPU host.
    "small": Preset(
        layers=12,
        embed_dim=768,
        heads=12,
        kv_heads=4,
        mlp_dim=2048,
        tie_embeddings=True,
        sequence_length=1024,
        learning_rate=6e-4,
    ),
} | FAMILY_PRESETS


if TYPE_CHECKING:
    PresetName = str
    FamilyName = str
else:
    # The keys are the allowed values: a type checker cannot evaluate this, the configuration parser can.
    PresetName = Literal[tuple(PRESETS)]
    FamilyName = Literal[tuple(FAMILIES)]

TRAIT_FIELDS = ("rope_scaling", "window", "global_every", "experts", "experts_per_token", "tie_embeddings")
"""Fields of both ModelConfig and ModelShape that a family or a preset may fix."""

FIELDS_BESIDE_FROM = ("from_", "ignore_config_keys", "remat", *TRAINING_ONLY, "compute_dtype")
FIELDS_BESIDE_CUSTOM = ("custom", "arguments", "weights", "vocab_size", "compute_dtype")
"""Fields of a model that may be set together with `from`, and with `custom`."""

VOCABULARY_MULTIPLE = 128
"""A derived vocabulary is rounded up to a multiple of it: the lanes of a TPU register; divides over devices."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A preset, the dimensions one by one, or a preset with some of them replaced."""

    preset: PresetName | None = None
    """A model by name. Fields beside it replace the preset's."""
    from_: str | None = None
    """Folder of a Hugging Face model (config.json and safetensors): local, gs:// or hf://. Training starts from its
    weights; its dimensions are those of config.json, and only computeDtype, quantization,
    ignoreConfigKeys and what begins with remat stand beside it."""
    ignore_config_keys: tuple[str, ...] | None = None
    """Keys of from's config.json that the trainer does not know, and goes on without. Numbers may differ from those of
    transformers, which knows them. Default: a key that is not known is refused."""
    custom: str | None = None
    """A model of your own, as module:name: an NNX or linen module, or a function that gives the functions init and
    apply, whose weights name their dimensions. arguments, weights, vocabSize and computeDtype may stand beside it."""
    arguments: Mapping[str, Any] | None = None
    """What the module of custom is made with, beside vocab_size and rngs."""
    weights: str | None = None
    """Folder of safetensors that training of custom starts from, as export writes it: local, gs:// or hf://. Its
    tensors are called as the parameters. Default: fresh weights."""
    family: FamilyName | None = None
    """What kind of decoder the dimensions describe. Without a preset: llama."""
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
    rope_scaling: RopeScaling | None = None
    """Rotary frequencies stretched to a longer context. Default: the preset's, else none."""
    window: Annotated[int, Range(1, 1048576)] | None = None
    """Positions that a windowed layer sees, itself included. Default: the preset's, else the family's."""
    global_every: Annotated[int, Range(1, 1000)] | None = None
    """Every so many layers, one sees all positions before it; the others see the window. Default: the family's."""
    experts: Annotated[int, Range(2, 4096)] | None = None
    """Feed-forward blocks of a mixture, each mlpDim wide; mixtral and qwen3-moe only. Default: the family's."""
    experts_per_token: Annotated[int, Range(1, 64)] | None = None
    """How many of them each token goes through. Default: the family's."""
    norm_eps: Annotated[float, Range(1e-12, 1e-2)] | None = None
    """Added to the mean square in RMSNorm. Without a preset: 1e-5."""
    tie_embeddings: bool | None = None
    """Whether the output projection is the embedding. Without a preset: false."""
    remat: Remat | None = None
    """What the backward pass recomputes: none (fastest, most memory), dots (all but matrix products), full (a layer's
    inside). Without a preset: full."""
    remat_save: tuple[Literal["qkv", "attention", "mlp"], ...] | None = None
    """With remat: full, what is kept in device memory for the backward pass: qkv (queries, keys and values),
    attention (what the heads saw), mlp (the two wide products of the feed-forward block)."""
    remat_offload: tuple[RematName, ...] | None = None
    """With remat: full, what is kept in the host's memory: input (what enters the layer, else in device memory), or
    what rematSave can name. On a machine without accelerators it stays where it is."""
    quantization: Quantization | None = None
    """Narrow type of the layers' matrix products, with scales made at each step: int8 (v5e, v5p, v6e) or fp8 (tpu7x).
    The gradients of weights, attention, the output matrix and the weights themselves keep their types."""
    compute_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of activations and of weights in use; the weights themselves stay float32. Default: bfloat16 on TPU and
    GPU, float32 on CPU."""

    def __post_init__(self) -> None:
        if self.from_ is not None:
            self._refuse_beside("from", "whose config.json says it", FIELDS_BESIDE_FROM)
            return
        if self.ignore_config_keys is not None:
            raise ValueError("ignoreConfigKeys: are those of the config.json of from, which is missing; leave it out")
        if self.custom is not None:
            require_reference(self.custom, "custom")
            self._refuse_beside("custom", "whose module says it by its arguments", FIELDS_BESIDE_CUSTOM)
            return
        if self.arguments is not None:
            raise ValueError("arguments: are those of custom, which is missing; name a module there, or leave them out")
        if self.weights is not None:
            raise ValueError("weights: are those of custom, which is missing; write from for a Hugging Face model")
        if self.preset is None:
            for key in ("layers", "embed_dim", "heads"):
                if getattr(self, key) is None:
                    camel = {"embed_dim": "embedDim"}.get(key, key)
                    raise ValueError(f"{camel}: required where there is no preset ({', '.join(PRESETS)})")
        self.resolve(vocabulary=2, platform="cpu")

    def _refuse_beside(self, key: str, why: str, allowed: tuple[str, ...]) -> None:
        for field in dataclasses.fields(ModelConfig):
            if getattr(self, field.name) is not None and field.name not in allowed:
                raise ValueError(f"{camel_case(field.name)}: excludes {key}, {why}; leave it out")

    def resolve(self, *, vocabulary: int, platform: str) -> ModelShape:
        """The model's dimensions.

        Args:
            vocabulary: number of ids that the tokenizer produces.
            platform: JAX platform of the devices: cpu, gpu or tpu.

        Raises:
            ValueError: two dimensions do not fit each other; the message begins with the key at fault.
        """
        if self.from_ is not None:
            raise ValueError(f"from: config.json of {self.from_!r} has not been read")
        base = PRESETS[self.preset] if self.preset else self._preset_of_dimensions()
        embed_dim, heads = self.embed_dim or base.embed_dim, self.heads or base.heads
        keeps_heads = self.embed_dim is None and self.heads is None
        head_dim = self.head_dim or (base.head_dim if keeps_heads else None)
        if head_dim is None and embed_dim % heads:
            raise ValueError(f"heads: {heads} does not divide embedDim ({embed_dim}); change one, or give headDim")
        vocab_size = rounded_vocabulary(self.vocab_size, base.vocab_size, vocabulary)
        return ModelShape(
            **self._traits(base)
            | {
                "layers": self.layers or base.layers,
                "embed_dim": embed_dim,
                "heads": heads,
                "kv_heads": self.kv_heads or (base.kv_heads if self.heads is None else heads),
                "head_dim": head_dim or embed_dim // heads,
                "mlp_dim": self.mlp_dim or (base.mlp_dim if self.embed_dim is None else _mlp_dim(embed_dim)),
                "vocab_size": vocab_size,
                "rope_theta": self.rope_theta or base.rope_theta,
                "norm_eps": base.norm_eps if self.norm_eps is None else self.norm_eps,
                "remat": self.remat or base.remat,
                "remat_save": self.remat_save or (),
                "remat_offload": self.remat_offload or (),
                "quantization": self.quantization,
                "compute_dtype": self.compute_dtype or ("float32" if platform == "cpu" else "bfloat16"),
            }
        )

    def _traits(self, base: Preset) -> dict[str, Any]:
        """The fields that family and preset set, overridden by those of the configuration."""
        name = self.family or base.family
        family = FAMILIES[name]
        said = {key: value for key in TRAIT_FIELDS if (value := getattr(self, key)) is not None}
        if "experts" not in family.traits and (wrong := {"experts", "experts_per_token"} & said.keys()):
            key = camel_case(sorted(wrong)[0])
            raise ValueError(f"{key}: the family {name} has no experts; leave it out, or choose mixtral or qwen3-moe")
        tied = {"tie_embeddings": base.tie_embeddings} if self.preset or base.tie_embeddings else {}
        return {"family": name, **tied, **family.traits, **base.traits, **said}

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
            family=self.family or "llama",
        )


def rounded_vocabulary(given: int | None, of_preset: int | None, vocabulary: int) -> int:
    """Rows of the embedding: as given, as in the preset, or enough for the tokenizer's ids.

    Raises:
        ValueError: there are fewer rows than ids.
    """
    size = given or of_preset or _round_up(vocabulary, VOCABULARY_MULTIPLE)
    if size < vocabulary:
        raise ValueError(f"vocabSize: {size} is less than the tokenizer's {vocabulary} ids; leave it out")
    return size


def _mlp_dim(embed_dim: int) -> int:
    return _round_up(math.ceil(embed_dim * 8 / 3), 128)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
