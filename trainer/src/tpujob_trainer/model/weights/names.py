"""Which tensor of a Hugging Face model each of our weights is, one table for all families.

Layers are stacked in our weights, and so are experts; there, each has tensors of its own. Axes: V vocabulary, D embed,
N query heads, K key heads, H head width, F mlp, E experts. Theirs: rows and columns of the stored matrix, in which
several of our axes may be one: `NH D` has N · H rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpujob_trainer.model.shape import ModelShape


@dataclass(frozen=True)
class Tensor:
    """One of our weights, and where it is found."""

    path: tuple[str, ...]
    """In the nested weights."""
    name: str
    """There; with `{layer}` and `{expert}` where each has its own."""
    ours: str
    """Our axes, without those of the stack."""
    theirs: str
    """The same axes in the order of the stored tensor, its dimensions separated by spaces."""

    @property
    def is_stacked(self) -> bool:
        """Whether each layer has a tensor of its own."""
        return "{layer}" in self.name

    @property
    def has_experts(self) -> bool:
        """Whether each expert has a tensor of its own."""
        return "{expert}" in self.name


_ATTENTION = {
    "query": ("q_proj.weight", "DNH", "NH D"),
    "key": ("k_proj.weight", "DKH", "KH D"),
    "value": ("v_proj.weight", "DKH", "KH D"),
    "out": ("o_proj.weight", "NHD", "D NH"),
}
_BIASES = {
    "query_bias": ("q_proj.bias", "NH", "NH"),
    "key_bias": ("k_proj.bias", "KH", "KH"),
    "value_bias": ("v_proj.bias", "KH", "KH"),
}
_MLP = {
    "gate": ("gate_proj.weight", "DF", "F D"),
    "up": ("up_proj.weight", "DF", "F D"),
    "down": ("down_proj.weight", "FD", "D F"),
}
_MIXTRAL_NAMES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_NORMS = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_NORMS_AROUND = {
    "attention_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "post_mlp_norm": "post_feedforward_layernorm",
}


def tensors(shape: ModelShape, *, prefix: str = "model.") -> Iterator[Tensor]:
    """All weights of a decoder.

    Args:
        shape: of the decoder.
        prefix: of all names but that of the output projection, `model.` in models of text alone.
    """
    yield Tensor(("embedding",), f"{prefix}embed_tokens.weight", "VD", "V D")
    yield Tensor(("norm", "scale"), f"{prefix}norm.weight", "D", "D")
    if not shape.tie_embeddings:
        yield Tensor(("output",), "lm_head.weight", "DV", "V D")
    layer = f"{prefix}layers.{{layer}}."
    for ours, theirs in (_NORMS_AROUND if shape.post_norms else _NORMS).items():
        yield Tensor(("layers", ours, "scale"), f"{layer}{theirs}.weight", "D", "D")
    for ours, (name, our_axes, their_axes) in (_ATTENTION | (_BIASES if shape.qkv_bias else {})).items():
        yield Tensor(("layers", "attention", ours), f"{layer}self_attn.{name}", our_axes, their_axes)
    if shape.qk_norm:
        for ours, theirs in (("query_norm", "q_norm"), ("key_norm", "k_norm")):
            yield Tensor(("layers", "attention", ours, "scale"), f"{layer}self_attn.{theirs}.weight", "H", "H")
    if shape.experts is None:
        for ours, (name, our_axes, their_axes) in _MLP.items():
            yield Tensor(("layers", "mlp", ours), f"{layer}mlp.{name}", our_axes, their_axes)
        return
    block = "block_sparse_moe" if shape.family == "mixtral" else "mlp"
    yield Tensor(("layers", "experts", "router"), f"{layer}{block}.gate.weight", "DE", "E D")
    for ours, (name, our_axes, their_axes) in _MLP.items():
        if shape.family == "mixtral":
            name = f"{_MIXTRAL_NAMES[name.removesuffix('.weight')]}.weight"
        yield Tensor(("layers", "experts", ours), f"{layer}{block}.experts.{{expert}}.{name}", our_axes, their_axes)
