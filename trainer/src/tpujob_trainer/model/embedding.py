"""The embedding table and the output matrix over the mesh: activations are exchanged, never the table.

With a part, hidden states are sent to all devices: few bytes if there are few tokens. With the whole, the matrix and
its gradient are exchanged, regardless of the number of tokens and devices. Over `tensor` the vocabulary is always
divided.

Arrays: D embed, V vocabulary.

Each device looks up its columns for the tokens of all devices, and the results are exchanged. The table's gradient is
summed in float32 on the device that holds it: in bfloat16, a token that occurs a thousand times would lose a sixth of
its sum. Sums between slices are exchanged in the compute dtype, as those of the layers.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.axes import TENSOR, WEIGHT_AXES
from tpujob_trainer.model.chips import LANES
from tpujob_trainer.model.partitioning import POSITIONS, of_each_device, summed_axes

TOKENS_PER_COLUMN = 2
"""From this many tokens of all devices per word of the vocabulary on, the matrix is gathered. At 1 both ways send the
same; a whole matrix with its gradient takes 6 · D · V bytes of memory, which must be worth it."""


class Columns(NamedTuple):
    """The part of the output matrix that is on this device while the loss is computed."""

    values: jax.Array
    """`[D, columns]`; those beyond the vocabulary are zero."""
    first: jax.Array | int
    """int32: the token id of the first column."""
    vocab_size: int
    is_whole: bool
    """Whether other devices along `WEIGHT_AXES` have the same columns."""


def is_gathered(*, tokens: int, vocab_size: int, mesh: Mesh) -> bool:
    """Whether the matrix is gathered on each device, instead of sending hidden states to its parts.

    Args:
        tokens: of one device.
        vocab_size: V.
        mesh: over which both are divided.
    """
    shards = mesh_size(mesh, WEIGHT_AXES)
    return shards > 1 and tokens * shards >= TOKENS_PER_COLUMN * vocab_size


def columns_here(output: jax.Array, mesh: Mesh, dtype: Any, *, is_whole: bool) -> Columns:
    """This device's columns, from its part `[D / devices, V]` of the matrix in the weights."""
    rows, vocab_size = output.shape
    shards, splits = 1 if is_whole else mesh_size(mesh, WEIGHT_AXES), mesh.shape[TENSOR]
    width = -(-vocab_size // (shards * splits))
    padded = jnp.pad(output.astype(dtype), ((0, 0), (0, shards * splits * width - vocab_size)))
    mine = padded.reshape(rows, shards, splits, width)[:, :, jax.lax.axis_index(TENSOR)]
    if is_whole:
        mine = jax.lax.all_gather(mine, WEIGHT_AXES, tiled=True)
    elif shards > 1:
        mine = jax.lax.all_to_all(mine, WEIGHT_AXES, 1, 0, tiled=True)
    first = jax.lax.axis_index(TENSOR) * width
    if shards > 1:
        first += jax.lax.axis_index(WEIGHT_AXES) * splits * width
    return Columns(mine.reshape(-1, width), first, vocab_size, is_whole)


def gradient_as_kept(gradient: jax.Array, columns: Columns, mesh: Mesh, dtype: Any) -> jax.Array:
    """The float32 gradient `[D / devices, V]` from that of this device's columns; if whole, exchanged as `dtype`."""
    depth, width = gradient.shape
    shards = mesh_size(mesh, WEIGHT_AXES)
    mine = gradient.reshape(depth, 1, width)
    if columns.is_whole:
        # Not psum_scatter: the TPU compiler would exchange the whole sum, twice the bytes.
        parts = jax.lax.all_to_all(mine.astype(dtype), WEIGHT_AXES, 0, 0, tiled=True)
        mine = jnp.sum(parts.reshape(shards, -1, 1, width), axis=0, dtype=jnp.float32)
    elif shards > 1:
        mine = jax.lax.all_to_all(mine, WEIGHT_AXES, 0, 1, tiled=True)
    mine = mine[:, :, None]
    if mesh.shape[TENSOR] > 1:
        mine = jax.lax.all_gather(mine, TENSOR, axis=2, tiled=True)
    return mine.reshape(depth // shards, -1)[:, : columns.vocab_size]


def summed_between_replicas(gradient: jax.Array, mesh: Mesh, axes: tuple[str, ...], dtype: Any) -> jax.Array:
    """The float32 sum over slices and replicas; exchanged as `dtype`, because slices have slow links between them."""
    if mesh_size(mesh, axes) == 1:
        return gradient
    rows, columns = gradient.shape
    # A table of fewer columns would be sent padded to `LANES`. A flattened one is sent in the same form.
    beside = LANES // columns if LANES % columns == 0 and rows % (LANES // columns) == 0 else 1
    wide = jnp.concatenate(jnp.split(gradient.astype(dtype), beside), axis=1)
    total: jax.Array = jnp.concatenate(jnp.split(jax.lax.psum(wide, axes), beside, axis=1))
    return total.astype(jnp.float32)


def mesh_size(mesh: Mesh, axes: tuple[str, ...]) -> int:
    """The number of devices along these axes together."""
    return math.prod(mesh.shape[axis] for axis in axes)


TABLE = PartitionSpec(None, WEIGHT_AXES)


def look_up(table: jax.Array, tokens: jax.Array, mesh: Mesh, dtype: Any) -> jax.Array:
    """The embeddings `[B, S, D]` of the tokens, in the compute dtype.

    Args:
        table: float32 `[V, D]`, D divided over the mesh.
        tokens: int32 `[B, S]`.
        mesh: over which both are divided.
        dtype: of the result.
    """
    return _look_up(table.astype(jnp.float32), tokens, mesh, jnp.dtype(dtype), table.shape[0])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _look_up(table: jax.Array, tokens: jax.Array, mesh: Mesh, dtype: np.dtype[Any], words: int) -> jax.Array:
    def of_device(table: jax.Array, tokens: jax.Array) -> jax.Array:
        columns = table[_everywhere(tokens, mesh)].astype(dtype)
        if mesh_size(mesh, WEIGHT_AXES) > 1:
            columns = jax.lax.all_to_all(columns, WEIGHT_AXES, 0, 1, tiled=True)
        return columns.reshape(*tokens.shape, -1)

    found: jax.Array = of_each_device(of_device, mesh, (TABLE, POSITIONS), POSITIONS)(table, tokens)
    return found


def _forward(
    table: jax.Array, tokens: jax.Array, mesh: Mesh, dtype: np.dtype[Any], words: int
) -> tuple[jax.Array, jax.Array]:
    return _look_up(table, tokens, mesh, dtype, words), tokens


def _backward(
    mesh: Mesh, dtype: np.dtype[Any], words: int, tokens: jax.Array, gradient: jax.Array
) -> tuple[jax.Array, None]:
    summed = summed_axes()

    def of_device(tokens: jax.Array, gradient: jax.Array) -> jax.Array:
        columns = gradient.reshape(tokens.size, -1)
        if mesh_size(mesh, WEIGHT_AXES) > 1:
            columns = jax.lax.all_to_all(columns, WEIGHT_AXES, 1, 0, tiled=True)
        table = jnp.zeros((words, columns.shape[1]), jnp.float32)
        table = table.at[_everywhere(tokens, mesh)].add(columns.astype(jnp.float32))
        return summed_between_replicas(table, mesh, summed, dtype)

    return of_each_device(of_device, mesh, (POSITIONS, POSITIONS), TABLE)(tokens, gradient), None


_look_up.defvjp(_forward, _backward)


def _everywhere(tokens: jax.Array, mesh: Mesh) -> jax.Array:
    here = tokens.ravel()
    return jax.lax.all_gather(here, WEIGHT_AXES, tiled=True) if mesh_size(mesh, WEIGHT_AXES) > 1 else here
