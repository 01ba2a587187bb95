"""The embedding table over the mesh: activations are exchanged, never the table.

Each device looks up its columns for the tokens of all devices, and the results are exchanged. The table's gradient is
summed in float32 on the device that holds it: in bfloat16, a token that occurs a thousand times would lose a sixth of
its sum. Sums between slices are exchanged in the compute dtype, as those of the layers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.axes import WEIGHT_AXES
from tpujob_trainer.model.output_columns import mesh_size, summed_between_replicas
from tpujob_trainer.model.partitioning import POSITIONS, of_each_device, summed_axes

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
