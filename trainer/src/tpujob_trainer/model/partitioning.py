"""How arrays lie on the mesh, and how a device gets what it needs.

- Rows of a batch are divided over all devices; each device computes on its own rows only.
- Each weight has one dimension divided over the axis `fsdp`. A layer's weights are gathered when the layer is
  computed; in the backward pass that becomes the scattering of the summed gradient (Zhao and others 2023, PyTorch
  FSDP).
- This is written out (`shard_map`) and not left to the compiler: the same exchanges happen whatever the model's size.

Names of weights' axes: layers, vocab, embed, heads, kv_heads, head_dim, mlp.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

DATA = "data"
FSDP = "fsdp"

ROWS = PartitionSpec((DATA, FSDP))
"""Rows of a batch: over all devices. What follows the first dimension is whole on each."""

REPLICATED = PartitionSpec()

PREFERENCE = ("embed", "mlp", "vocab", "heads", "kv_heads")
"""Which axis of a weight is divided over `fsdp`: the first of these whose size it divides."""

WHOLE = -1
"""Instead of a dimension: the weight is kept whole by every device."""

PACKED_BYTES = 4 * 2**20
"""Weights of a layer that are smaller are gathered as one: below this an exchange costs its latency, not its bytes."""


def divided_dim(axes: tuple[str, ...], dims: tuple[int, ...], fsdp: int) -> int:
    """Which dimension of a weight is divided over `fsdp`; WHOLE for vectors, and where none can be.

    Args:
        axes: name of each dimension of the weight.
        dims: size of each dimension.
        fsdp: number of devices along the axis `fsdp`.
    """
    if len([axis for axis in axes if axis != "layers"]) > 1:
        for axis in PREFERENCE:
            if axis in axes and dims[axes.index(axis)] % fsdp == 0:
                return axes.index(axis)
    return WHOLE


def spec_of(dim: int) -> PartitionSpec:
    """The partition of a weight whose dimension `dim` is divided."""
    return REPLICATED if dim == WHOLE else PartitionSpec(*(None,) * dim, FSDP)


def gather(parts: Any, dims: Any, dtype: Any) -> Any:
    """The weights of which each device along `fsdp` holds a part; inside `shard_map` only.

    Args:
        parts: a tree of weights, as this device holds them.
        dims: the same tree, of the dimension that is divided; WHOLE ones are returned as they are.
        dtype: of the result. They are cast before they travel.
    """
    leaves, structure = jax.tree.flatten(parts)
    where = structure.flatten_up_to(dims)
    devices = jax.lax.axis_size(FSDP)
    result = list(leaves)
    packed = []
    for i, (leaf, dim) in enumerate(zip(leaves, where, strict=True)):
        if dim == WHOLE:
            continue
        if leaf.size * devices * jnp.dtype(dtype).itemsize < PACKED_BYTES:
            packed.append(i)
        else:
            result[i] = jax.lax.all_gather(leaf.astype(dtype), FSDP, axis=dim, tiled=True)
    if packed:
        flat = jnp.concatenate([leaves[i].astype(dtype).ravel() for i in packed])
        rows = jax.lax.all_gather(flat, FSDP)
        start = 0
        for i in packed:
            end = start + leaves[i].size
            result[i] = _joined(rows[:, start:end].reshape(devices, *leaves[i].shape), where[i])
            start = end
    return jax.tree.unflatten(structure, result)


def sum_over_devices(numbers: list[jax.Array]) -> list[jax.Array]:
    """Each float32 array summed over all devices, in one exchange; inside `shard_map` only."""
    flat = jax.lax.psum(jnp.concatenate([array.ravel() for array in numbers]), (DATA, FSDP))
    ends = [0]
    for array in numbers:
        ends.append(ends[-1] + array.size)
    return [flat[ends[i] : ends[i + 1]].reshape(array.shape) for i, array in enumerate(numbers)]


def _joined(parts: jax.Array, dim: int) -> jax.Array:
    """`[devices, ...]` put together along `dim` of what follows."""
    moved = jnp.moveaxis(parts, 0, dim)
    shape = moved.shape
    return moved.reshape(*shape[:dim], math.prod(shape[dim : dim + 2]), *shape[dim + 2 :])
