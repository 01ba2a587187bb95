"""Rows of a corpus packed into sequences, as a program sees them, and what it keeps of the values at their positions.

Arrays: B sequences, S positions, and up to M rows in each sequence, one after the other from position 0.

Arrays: B sequences, S positions, up to M rows in a sequence, D width.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch
from tpujob_trainer.corpus.extract.config import Positions, ValueType
from tpujob_trainer.corpus.extract.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequences:
    """A batch: its tokens, and where its rows are; int32."""

    tokens: jax.Array
    """`[B, S]`"""
    starts: jax.Array
    """`[B, M]`, first position of each row, ascending; S where there is no row."""
    lengths: jax.Array
    """`[B, M]`, tokens of each row; 0 where there is none."""
    samples: jax.Array
    """`[B, M]`, numbers of the rows in the corpus."""

    @property
    def is_row(self) -> jax.Array:
        """Whether there is a row: bool `[B, M]`."""
        return self.lengths > 0

    @property
    def segments(self) -> jax.Array:
        """int32 `[B, S]`, the row of each position; positions after the last row belong to it."""
        begun = jnp.arange(self.tokens.shape[1])[:, None] >= self.starts[:, None, :]
        return jnp.maximum(jnp.sum(begun, axis=2, dtype=jnp.int32) - 1, 0)

    @property
    def positions(self) -> jax.Array:
        """int32 `[B, S]`, from 0 in each row."""
        return jnp.maximum(jnp.arange(self.tokens.shape[1]) - jnp.take_along_axis(self.starts, self.segments, 1), 0)

    @property
    def left(self) -> jax.Array:
        """int32 `[B, S]`, tokens of the row from each position on, including it; 0 or less where there is no row."""
        return jnp.take_along_axis(self.lengths, self.segments, 1) - self.positions

    def last(self, x: jax.Array) -> jax.Array:
        """`[B, M, D]`: `x` `[B, S, D]` at the last token of each row."""
        ends = jnp.clip(self.starts + self.lengths - 1, 0, self.tokens.shape[1] - 1)
        return jnp.take_along_axis(x, ends[..., None], axis=1)

    def total(self, x: jax.Array) -> jax.Array:
        """float32 `[B, M, ...]`: the sums of `x` `[B, S, ...]` over the tokens of each row."""
        at = jnp.arange(self.tokens.shape[1])
        starts, ends = self.starts[..., None], (self.starts + self.lengths)[..., None]
        is_of = ((at >= starts) & (at < ends)).astype(jnp.float32)
        return jnp.einsum("bms,bs...->bm...", is_of, x.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)


def filled(rows: Rows, batch: Batch, samples: np.ndarray, most_rows: int) -> Sequences:
    """The sequences of a batch, in this machine's memory.

    Args:
        rows: of the unit.
        batch: which of them, and where.
        samples: int64 `[rows of the unit]`, their numbers in the corpus, of which 31 bits are kept.
        most_rows: M.
    """
    tokens = np.zeros((batch.size, batch.length), np.int32)
    starts = np.full((batch.size, most_rows), batch.length, np.int32)
    lengths, numbers = np.zeros_like(starts), np.zeros_like(starts)
    where = batch.sequences, batch.slots
    starts[where], lengths[where] = batch.starts, rows.lengths[batch.rows]
    numbers[where] = samples[batch.rows] & 0x7FFFFFFF
    ends = np.cumsum(rows.lengths)
    for row, sequence, start in zip(batch.rows.tolist(), batch.sequences.tolist(), batch.starts.tolist(), strict=True):
        length = int(rows.lengths[row])
        tokens[sequence, start : start + length] = rows.tokens[ends[row] - length : ends[row]]
    return Sequences(tokens, starts, lengths, numbers)


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
