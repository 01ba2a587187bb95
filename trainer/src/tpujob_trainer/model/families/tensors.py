"""The tensors of a decoder in the files of transformers, as most families name them.

Layers and experts are stacked in our weights; in the files, each has separate tensors. Axes: V vocabulary, D embed,
N query heads, K key heads, H head width, F mlp, S mlp of the shared expert, E experts, O one. Theirs: rows and columns
of the stored matrix, which may merge several of our axes: `NH D` has N · H rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_trainer.model.families.base import Tensor

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
_NORMS = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_NORMS_AROUND = {
    "attention_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "post_mlp_norm": "post_feedforward_layernorm",
}


def layer_tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    """The tensors of each layer, whose names start with `layer`."""
    yield from norms(shape, layer)
    yield from attention(shape, layer)
    if shape.experts is None:
        yield from feed_forward(("layers", "mlp"), f"{layer}mlp.")
    else:
        yield from experts(f"{layer}mlp.")


def norms(shape: Any, layer: str) -> Iterator[Tensor]:
    """The norms before and after the blocks of a layer, as far as the shape has them."""
    names: Mapping[str, str] = _NORMS_AROUND if shape.post_norms else _NORMS
    for ours, theirs in names.items():
        if shape.pre_norms or ours.startswith("post_"):
            yield Tensor(("layers", ours, "scale"), f"{layer}{theirs}.weight", "D", "D")


def attention(shape: Any, layer: str) -> Iterator[Tensor]:
    """The projections of attention, their biases and the norms of queries and keys."""
    for ours, (name, our_axes, their_axes) in (_ATTENTION | (_BIASES if shape.qkv_bias else {})).items():
        yield Tensor(("layers", "attention", ours), f"{layer}self_attn.{name}", our_axes, their_axes)
    for ours, theirs, axes in (("query_norm", "q_norm", "NH"), ("key_norm", "k_norm", "KH")):
        if shape.qk_norm:
            axes = axes if shape.wide_qk_norm else "H"
            yield Tensor(("layers", "attention", ours, "scale"), f"{layer}self_attn.{theirs}.weight", axes, axes)
    if shape.out_bias:
        yield Tensor(("layers", "attention", "out_bias"), f"{layer}self_attn.o_proj.bias", "D", "D")


def feed_forward(path: tuple[str, ...], block: str, *, wide: str = "F") -> Iterator[Tensor]:
    """The matrices of a gated feed-forward block.

    Args:
        path: of the block in our weights.
        block: prefix of its names.
        wide: its inner axis.
    """
    for ours, (name, our_axes, their_axes) in _MLP.items():
        yield Tensor((*path, ours), f"{block}{name}", our_axes.replace("F", wide), their_axes.replace("F", wide))


def experts(block: str, *, names: Mapping[str, str] | None = None) -> Iterator[Tensor]:
    """The matrices of the router and of the experts.

    Args:
        block: prefix of their names.
        names: of gate, up and down; None: the usual ones.
    """
    yield Tensor(("layers", "experts", "router"), f"{block}gate.weight", "DE", "E D")
    for tensor in feed_forward(("layers", "experts"), f"{block}experts.{{expert}}."):
        ours = tensor.path[-1]
        named = tensor.name if names is None else f"{block}experts.{{expert}}.{names[ours]}.weight"
        yield Tensor(tensor.path, named, tensor.ours, tensor.theirs)
