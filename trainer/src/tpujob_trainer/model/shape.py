"""The dimensions of a decoder, and the numbers that follow from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tpujob_trainer.model.families.base import Latent, RopeScaling, SigmoidRouter
from tpujob_trainer.values.from_mapping import camel_case

Remat = Literal["none", "dots", "full"]
Quantization = Literal["int8", "fp8"]
RematName = Literal["input", "qkv", "attention", "mlp"]
"""Values of a layer that `remat: full` can keep."""

TRAINING_ONLY = ("remat_save", "remat_offload", "quantization")
"""Fields of a shape that only training depends on; descriptions of results and of stored models omit them."""

_LATER_FIELDS = (
    *("wide_qk_norm", "rotary_dim", "unturned_every", "turned_layers", "pre_norms"),
    *("norm_topk", "shared_mlp_dim", "shared_gate", "out_bias", "sinks", "experts_bias"),
    *("swiglu_alpha", "swiglu_limit", "sigmoid_router", "dense_layers", "dense_mlp_dim", "latent"),
    *("embedding_factor", "residual_factor", "logits_divisor"),
)
"""Fields that `described` omits if they have their defaults, because descriptions of earlier releases lack them."""
_FIRST_ROPE_FIELDS = ("factor", "low_freq_factor", "high_freq_factor", "original_length", "linear")

LAYERS, DENSE_LAYERS = "layers", "dense_layers"
"""Names of the layers' weights: of all layers or those with experts, and of the first layers without experts."""
STACKS = (DENSE_LAYERS, LAYERS)


class Stack(NamedTuple):
    """Layers with weights of the same shapes, which are stacked along a first dimension."""

    name: str
    """Name of its weights."""
    first: int
    end: int
    shape: ModelShape
    """Of these layers."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Every number and choice that a decoder is made of."""

    layers: int
    embed_dim: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_dim: int
    """Width inside the feed-forward block; with experts, inside one of them."""
    vocab_size: int
    family: str = "llama"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    local_rope_theta: float | None = None
    """Base of the frequencies of windowed layers, never scaled; None: as for the others."""
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    """Queries and keys are normalised, head by head, before they are rotated."""
    out_bias: bool = False
    """The output projection of attention has a bias."""
    sinks: bool = False
    """Each head has a learned score without a value, which takes its part of the softmax."""
    wide_qk_norm: bool = False
    """Queries and keys are normalised over all heads at once."""
    rotary_dim: int | None = None
    """Numbers of each head that positions rotate, the first ones (with `latent`, the last); None: all."""
    unturned_every: int | None = None
    """Layers n, 2n, ... do not rotate queries and keys."""
    turned_layers: tuple[bool, ...] | None = None
    """For each layer, whether it rotates them; for layers at unequal distances."""
    pre_norms: bool = True
    """The input of a block is normalised."""
    activation: str = "silu"
    """silu, or gelu by its tanh approximation."""
    post_norms: bool = False
    """The output of a block is normalised before it is added to the residual stream."""
    zero_centered_norms: bool = False
    """A norm multiplies by 1 + scale."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the square root of embed_dim."""
    embedding_factor: float = 1.0
    """Embeddings are multiplied by it."""
    residual_factor: float = 1.0
    """The output of a block is multiplied by it before it is added to the residual stream."""
    logits_divisor: float = 1.0
    """Logits are divided by it."""
    query_scale: float | None = None
    """Factor of the attention scores; None: 1 / sqrt(head_dim)."""
    attention_softcap: float | None = None
    """Scores s become cap · tanh(s / cap)."""
    logit_softcap: float | None = None
    window: int | None = None
    """Positions that a windowed layer sees, itself included."""
    global_every: int | None = None
    """Layers n, 2n, ... attend to all earlier positions; None: if there is a window, all layers have it."""
    experts: int | None = None
    experts_per_token: int = 2
    norm_topk: bool = True
    """The chosen experts' weights are a softmax over these; otherwise their values in a softmax over all."""
    shared_mlp_dim: int | None = None
    """Width of a shared expert that every token goes through, in addition to the chosen ones."""
    shared_gate: bool = False
    """The output of the shared expert is multiplied by a sigmoid gate."""
    experts_bias: bool = False
    """The router and the experts' matrices have biases."""
    sigmoid_router: SigmoidRouter | None = None
    """How experts are chosen by sigmoids; None: by a softmax."""
    dense_layers: int = 0
    """Number of first layers of a mixture with a single block instead of experts."""
    dense_mlp_dim: int | None = None
    """Width inside these blocks."""
    latent: Latent | None = None
    """Latent attention, where positions rotate `rotary_dim` numbers of each head; None: standard attention."""
    swiglu_alpha: float | None = None
    """Gain of the experts' gated sigmoid: (up + 1) · gate · sigmoid(alpha · gate); None: activation(gate) · up."""
    swiglu_limit: float | None = None
    """With `swiglu_alpha`: gates are at most this, and up between minus this and this."""
    remat: str = "full"
    remat_save: tuple[RematName, ...] = ()
    """Kept in device memory by `remat: full`."""
    remat_offload: tuple[RematName, ...] = ()
    """Kept in the host's memory by `remat: full`."""
    quantization: Quantization | None = None
    """Narrow type of the layers' matrix products in training."""
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"kvHeads: {self.kv_heads} does not divide heads ({self.heads})")
        if self.head_dim % 2:
            raise ValueError(f"headDim: {self.head_dim} is odd; rotary positions turn pairs, so it must be even")
        scaling, turned = self.rope_scaling, (self.rotary_dim or self.head_dim) // 2
        for key in ("short_factors", "long_factors") if scaling is not None and scaling.way == "longrope" else ():
            if (found := len(getattr(scaling, key))) != turned:
                raise ValueError(f"ropeScaling.{camel_case(key)}: {found} numbers; give {turned}, one for each pair")
        self._check_experts()
        if self.latent is not None:
            self._check_latent(self.latent)
        if self.quantization and self.experts:
            raise ValueError(
                f"quantization: {self.quantization} is for single blocks, and this model has {self.experts} experts, "
                "where most of its products are; leave it out"
            )
        for key, names in (("rematSave", self.remat_save), ("rematOffload", self.remat_offload)):
            self._check_names(key, names)
        if both := sorted({*self.remat_save} & {*self.remat_offload}):
            raise ValueError(f"rematOffload: {both[0]} is in rematSave, too; leave it out of one")

    def _check_experts(self) -> None:
        experts, chosen, router = self.experts or 0, self.experts_per_token, self.sigmoid_router
        if self.experts and chosen > experts:
            raise ValueError(f"expertsPerToken: {chosen} is more than experts ({experts})")
        if self.dense_layers >= self.layers:
            raise ValueError(f"layers: {self.layers}, and the first {self.dense_layers} have no experts; give more")
        if router is None or router.groups == 1:
            return
        if experts % router.groups or experts < 2 * router.groups:
            raise ValueError(f"experts: {experts} do not divide into {router.groups} groups of two or more")
        if router.groups_per_token > router.groups or chosen > router.groups_per_token * experts // router.groups:
            raise ValueError(
                f"expertsPerToken: {chosen} are chosen from {router.groups_per_token} of {router.groups} groups of "
                f"{experts // router.groups} experts, which have too few"
            )

    def _check_latent(self, latent: Latent) -> None:
        if self.kv_heads != self.heads:
            raise ValueError(f"kvHeads: {self.kv_heads}; the family {self.family} has as many as heads ({self.heads})")
        if self.rotary_dim is None or not 0 < self.rotary_dim < self.head_dim or self.rotary_dim % 2:
            raise ValueError(f"headDim: positions turn {self.rotary_dim} of its {self.head_dim} numbers; give more")

    def _check_names(self, key: str, names: tuple[RematName, ...]) -> None:
        if names and self.remat != "full":
            raise ValueError(
                f"{key}: stands beside remat: full only, and remat is {self.remat}; set it, or leave {key} out"
            )
        if "mlp" in names and self.experts:
            raise ValueError(f"{key}: mlp is a single block's, and this model has {self.experts} experts; leave it out")

    @property
    def global_layers(self) -> tuple[bool, ...]:
        """For each layer, whether it attends to all earlier positions."""
        if self.window is None:
            return (True,) * self.layers
        every = self.global_every
        return tuple(every is not None and (layer + 1) % every == 0 for layer in range(self.layers))

    @property
    def layers_turned(self) -> tuple[bool, ...]:
        """For each layer, whether positions rotate its queries and keys."""
        if self.turned_layers is not None:
            return self.turned_layers
        every = self.unturned_every
        return tuple(every is None or (layer + 1) % every != 0 for layer in range(self.layers))

    @property
    def score_scale(self) -> float:
        """The factor of the product of a query and a key."""
        usual = self.head_dim**-0.5 if self.query_scale is None else self.query_scale
        return usual if self.latent is None else usual * self.latent.score_factor

    @property
    def gathers_narrow(self) -> bool:
        """Whether a layer's matrices are gathered in the narrow type in which they are multiplied."""
        return self.quantization is not None and self.latent is None

    @property
    def value_dim(self) -> int:
        """Width of a head's values."""
        return self.head_dim if self.latent is None else self.latent.value_dim

    @property
    def divided_dims(self) -> tuple[int, ...]:
        """The dimensions of matrices that are divided over `fsdp`."""
        ranks = () if self.latent is None else (self.latent.rank, self.latent.query_rank)
        return (self.embed_dim, *(rank for rank in ranks if rank is not None))

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The layers, grouped by the shapes of their weights."""
        if not self.dense_layers:
            return (Stack(LAYERS, 0, self.layers, self),)
        first = self.dense_layers
        dense = dataclasses.replace(
            self,
            experts=None,
            sigmoid_router=None,
            shared_mlp_dim=None,
            dense_layers=0,
            mlp_dim=self.dense_mlp_dim or self.mlp_dim,
        )
        return Stack(DENSE_LAYERS, 0, first, dense), Stack(LAYERS, first, self.layers, self)

    @property
    def num_parameters(self) -> int:
        """The number of weights of the model, embeddings and norms included."""
        return self._parameters(self.experts or 1)

    @property
    def active_parameters(self) -> int:
        """The number of weights that one token uses: of the experts, only those it goes through."""
        return self._parameters(self.experts_per_token if self.experts else 1)

    @property
    def vocabulary_parameters(self) -> int:
        """The number of weights of the embedding and of the output matrix."""
        return self.vocab_size * self.embed_dim * (1 if self.tie_embeddings else 2)

    def _parameters(self, experts: int) -> int:
        blocks = experts * 3 * self.embed_dim * self.mlp_dim + self.embed_dim * (self.experts or 0)
        if self.experts_bias:
            blocks += experts * (2 * self.mlp_dim + self.embed_dim)
        if self.experts_bias or self.sigmoid_router:
            blocks += self.experts or 0
        if self.shared_mlp_dim is not None:
            blocks += 3 * self.embed_dim * self.shared_mlp_dim + self.embed_dim * self.shared_gate
        dense = 3 * self.embed_dim * (self.dense_mlp_dim or 0)
        norms = 2 * (self.pre_norms + self.post_norms) * self.embed_dim
        everywhere = self.layers * (self._attention_parameters() + norms)
        feed_forward = (self.layers - self.dense_layers) * blocks + self.dense_layers * dense
        return everywhere + feed_forward + self.vocabulary_parameters + self.embed_dim

    def _attention_parameters(self) -> int:
        found = self.projection_parameters
        if self.latent is not None:
            return found + self.latent.rank + (self.latent.query_rank or 0)
        if self.qkv_bias:
            found += self.head_dim * (self.heads + 2 * self.kv_heads)
        if self.qk_norm:
            found += self.head_dim * (self.heads + self.kv_heads if self.wide_qk_norm else 2)
        if self.out_bias:
            found += self.embed_dim
        return found + self.heads if self.sinks else found

    @property
    def projection_parameters(self) -> int:
        """The number of weights in the matrices of a layer's attention."""
        if self.latent is None:
            return 2 * self.embed_dim * self.head_dim * (self.heads + self.kv_heads)
        embed, rank, of_query = self.embed_dim, self.latent.rank, self.latent.query_rank
        turned = self.rotary_dim or 0
        queries = self.heads * self.head_dim
        query = embed * queries if of_query is None else of_query * (embed + queries)
        keys_and_values = embed * (rank + turned) + rank * self.heads * (self.head_dim - turned + self.value_dim)
        return query + keys_and_values + self.heads * self.value_dim * embed


def described(shape: ModelShape) -> dict[str, Any]:
    """The fields that a model's results depend on; the same in all releases that know the model."""
    added = {field.name: field.default for field in dataclasses.fields(ModelShape) if field.name in _LATER_FIELDS}
    made = {key: value for key, value in dataclasses.asdict(shape).items() if key not in TRAINING_ONLY}
    made = {key: value for key, value in made.items() if key not in added or value != added[key]}
    if shape.rope_scaling is not None:
        usual = {field.name: field.default for field in dataclasses.fields(RopeScaling)}
        made["rope_scaling"] = {
            key: value
            for key, value in made["rope_scaling"].items()
            if key in _FIRST_ROPE_FIELDS or value != usual[key]
        }
    return made


@dataclass(frozen=True, kw_only=True)
class CustomShape(ModelShape):
    """The shape of a user-defined module: the sizes of its named axes, 1 for those that it does not have."""

    custom: str
    """`module:name`."""
    arguments: dict[str, Any]
    weights: int
    """Total size of its weights."""
    unnamed: tuple[str, ...] = ()
    """Its weights that do not name their dimensions."""

    @property
    def num_parameters(self) -> int:
        return self.weights

    @property
    def vocabulary_parameters(self) -> int:
        return 0  # not distinguished from others

    @property
    def active_parameters(self) -> int:
        return self.weights
