"""Prepares a layer's values on the device: selects positions, converts the type, and computes sums for statistics.

Arrays: B sequences, S positions, up to M rows in a sequence, D width.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tpujob_trainer.corpus.extract.config import Positions, ValueType
from tpujob_trainer.corpus.extract.sequences import Sequences

Kept = dict[str, jax.Array]
"""`values`, and for int8 `scales`; `sums`: float32 [6], as in `STATISTICS`."""


def keep(x: jax.Array, sequences: Sequences, *, positions: Positions, dtype: ValueType) -> Kept:
    """The kept part of the values `x` `[B, S, D]`.

    Returns:
        values `[B, S, D]`, or `[B, M, D]` for one vector of each row; scales without the last dimension.
    """
    counted = sequences.left > 0 if positions == "all" else sequences.is_row
    return typed_with_sums(at_positions(x, sequences, positions), counted, dtype)


def at_positions(x: jax.Array, sequences: Sequences, positions: Positions) -> jax.Array:
    """`x` `[B, S, D]` as it is, or `[B, M, D]`: its values at the last token of each row, or their mean."""
    if positions == "all":
        return x
    if positions == "last":
        return sequences.last(x)
    return sequences.total(x) / jnp.maximum(sequences.lengths, 1)[..., None]


def typed_with_sums(x: jax.Array, counted: jax.Array, dtype: ValueType) -> Kept:
    """The values of `x` `[..., D]` in a type, and their sums over the `counted` vectors, bool `[...]`."""
    kept = _typed(x, dtype)
    return kept | {"sums": sums_of(_restored(kept), counted)}


def _typed(x: jax.Array, dtype: ValueType) -> Kept:
    if dtype != "int8":
        return {"values": x.astype(dtype)}
    wide = x.astype(jnp.float32)
    scales = jnp.max(jnp.abs(wide), axis=-1) / 127
    steps = wide / jnp.where(scales > 0, scales, 1)[..., None]
    return {"values": jnp.round(steps).astype(jnp.int8), "scales": scales}


def _restored(kept: Kept) -> jax.Array:
    """The values as a reader of the files gets them, float32."""
    wide = kept["values"].astype(jnp.float32)
    return wide * kept["scales"][..., None] if "scales" in kept else wide


def sums_of(x: jax.Array, counted: jax.Array) -> jax.Array:
    """`STATISTICS` of the values `x` `[..., D]` over the `counted` vectors, bool `[...]`: float32 [6]."""
    is_counted = jnp.broadcast_to(counted[..., None], x.shape)
    is_finite = jnp.isfinite(x) & is_counted
    finite = jnp.where(is_finite, x, 0)
    count: Any = jnp.sum(counted, dtype=jnp.float32) * x.shape[-1]
    return jnp.stack(
        [
            count,
            jnp.sum(finite),
            jnp.sum(finite * finite),
            jnp.min(jnp.where(is_finite, x, jnp.inf)),
            jnp.max(jnp.where(is_finite, x, -jnp.inf)),
            jnp.sum(is_counted & ~is_finite, dtype=jnp.float32),
        ]
    )
