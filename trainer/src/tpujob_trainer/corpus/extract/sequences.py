"""Rows of a corpus packed into sequences, as a program sees them.

Arrays: B sequences, S positions, and up to M rows in each sequence, one after the other from position 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch
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
