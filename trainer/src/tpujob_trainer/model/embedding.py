"""The embedding table over the mesh: activations travel, never the table.

Each device looks up its columns for the tokens of all, and the results are exchanged. The table's gradient is added in
float32 on the device that holds it: in bfloat16, a token seen a thousand times would lose a sixth of its sum.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.partitioning import POSITIONS, WEIGHT_AXES

TABLE = PartitionSpec(None, WEIGHT_AXES)


def look_up(table: jax.Array, tokens: jax.Array, mesh: Mesh, dtype: Any) -> jax.Array:
    """The embeddings `[B, S, D]` of the tokens, in the type of computation.

    Args:
        table: float32 `[V, D]`, D divided over the mesh.
        tokens: int32 `[B, S]`.
        mesh: over which both lie.
        dtype: of the result.
    """
    shards = _shards(mesh)

    def of_device(table: jax.Array, tokens: jax.Array) -> jax.Array:
        here = tokens.ravel()
        if shards == 1:
            return table[here].astype(dtype).reshape(*tokens.shape, -1)
        everywhere = jax.lax.all_gather(here, WEIGHT_AXES, tiled=True)
        columns = table[everywhere].astype(dtype)
        found = jax.lax.all_to_all(columns, WEIGHT_AXES, 0, 1, tiled=True)
        return found.reshape(*tokens.shape, -1)

    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=(TABLE, POSITIONS), out_specs=POSITIONS, check_vma=False)
    found: jax.Array = mapped(table.astype(jnp.float32), tokens)
    return found


def _shards(mesh: Mesh) -> int:
    found = 1
    for axis in WEIGHT_AXES:
        found *= mesh.shape[axis]
    return found
