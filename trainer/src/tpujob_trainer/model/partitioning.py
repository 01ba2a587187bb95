"""How arrays lie on the mesh: rows over all devices, weights over the axis `fsdp`.

Legend for axes of weights: layers, vocab, embed, heads, kv_heads, head_dim, mlp. Each weight names its own, so that a
rule about an axis is written once, here.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

DATA = "data"
FSDP = "fsdp"

ROWS = PartitionSpec((DATA, FSDP))
"""Rows of a batch: over all devices. What follows the first dimension is whole on each."""

REPLICATED = PartitionSpec()

PREFERENCE = ("embed", "mlp", "vocab", "heads", "kv_heads")
"""Which axis of a weight is divided over `fsdp`: the first of these whose size it divides."""


def weight_spec(axes: tuple[str, ...], dims: tuple[int, ...], fsdp: int) -> PartitionSpec:
    """Where a weight lies: one of its axes divided over `fsdp`; whole everywhere if none can be.

    Args:
        axes: name of each dimension of the weight.
        dims: size of each dimension.
        fsdp: number of devices along the axis `fsdp`.
    """
    sizes = dict(zip(axes, dims, strict=True))
    for axis in PREFERENCE:
        if axis in sizes and sizes[axis] % fsdp == 0:
            return PartitionSpec(*(FSDP if name == axis else None for name in axes))
    return REPLICATED


def sharding_like(tree: Any, weights: Any, shardings: Any, mesh: jax.sharding.Mesh) -> Any:
    """The shardings of a tree in which some subtrees are shaped like the weights, as an optimizer's moments are.

    Everything else (counters) is whole on each device.
    """
    structure = jax.tree.structure(weights)

    def is_like_weights(node: Any) -> bool:
        return jax.tree.structure(node) == structure

    return jax.tree.map(
        lambda node: shardings if is_like_weights(node) else NamedSharding(mesh, REPLICATED),
        tree,
        is_leaf=is_like_weights,
    )


def over_rows(x: jax.Array) -> jax.Array:
    """An activation `[rows, ...]`, told to lie as the batch does.

    Without this XLA may choose to compute rows of other devices and exchange them ("involuntary full
    rematerialization"). Outside of a mesh it is the array itself.
    """
    return _constrained(x, ROWS)


def whole(x: jax.Array) -> jax.Array:
    """A weight in use, gathered from the devices that keep its parts."""
    return _constrained(x, REPLICATED)


def _constrained(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec)
