"""One hop of ring attention on CPU and GPU, a block of queries at a time.

Arrays: B rows, N query heads, K key heads, G query heads of each, L positions, C queries of a block, H head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tpujob_trainer.model.ring.attention import Inputs, Seen

BLOCK = 512
"""Queries at a time."""

HIDDEN = -1e30
"""Score of a key that is not seen; finite, so that a query that sees none has numbers, of which none count."""


@dataclass(frozen=True)
class InBlocks:
    """Attention of a device's queries to the keys of one device: `attention.Part`."""

    window: int | None
    softcap: float | None

    def forward(self, distance: int | None, inputs: Inputs) -> Seen:
        """Attention to these keys alone."""
        length = inputs.query.shape[2]

        def one(start: jax.Array, query: jax.Array, segments: jax.Array) -> Seen:
            scores = self._scores(distance, start, query, segments, inputs.key, inputs.key_segments)
            logsumexp = jax.nn.logsumexp(scores, axis=-1)
            return Seen(_times(jnp.exp(scores - logsumexp[..., None]), inputs.value), logsumexp)

        found = jax.lax.map(lambda each: one(*each), _cut(length, inputs.query, inputs.query_segments))
        return Seen(*(_whole(x, length) for x in found))

    def backward(
        self, distance: int | None, inputs: Inputs, seen: Seen, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Gradients of query, key and value, from what was seen of all keys and its gradient."""
        length = inputs.query.shape[2]
        # The softmax takes this away from the gradient of each of a query's probabilities (Dao and others 2022).
        common = jnp.sum(seen.values.astype(jnp.float32) * gradient.astype(jnp.float32), axis=-1)

        def one(sums: tuple[jax.Array, jax.Array], block: tuple[jax.Array, ...]) -> Any:
            start, query, segments, logsumexp, gradient, common = block

            def probable(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
                scores = self._scores(distance, start, query, segments, key, inputs.key_segments)
                probabilities = jnp.exp(scores - logsumexp[..., None])
                return _times(probabilities, value), jnp.sum(probabilities, axis=-1)

            _, pull = jax.vjp(probable, query, inputs.key, inputs.value)
            of_query, *others = pull((gradient.astype(jnp.float32), -common))
            return tuple(a + b.astype(jnp.float32) for a, b in zip(sums, others, strict=True)), of_query

        blocks = _cut(length, inputs.query, inputs.query_segments, seen.logsumexp, gradient, common)
        zeros = (jnp.zeros(inputs.key.shape, jnp.float32), jnp.zeros(inputs.value.shape, jnp.float32))
        (of_key, of_value), of_query = jax.lax.scan(one, zeros, blocks)
        return _whole(of_query, length), of_key, of_value

    def _scores(
        self,
        distance: int | None,
        start: jax.Array,
        query: jax.Array,
        segments: jax.Array,
        key: jax.Array,
        key_segments: jax.Array,
    ) -> jax.Array:
        """float32 `[B, N, C, L]`."""
        rows, heads, count, width = query.shape
        grouped = query.reshape(rows, key.shape[1], -1, count, width)
        scores = jnp.einsum("BKGCH,BKLH->BKGCL", grouped, key, preferred_element_type=jnp.float32)
        scores = scores.reshape(rows, heads, count, -1)
        if self.softcap is not None:
            scores = self.softcap * jnp.tanh(scores / self.softcap)
        sees = segments[:, :, None] == key_segments[:, None, :]
        if distance is not None:
            behind = distance + start + jnp.arange(count)[:, None] - jnp.arange(key.shape[2])
            sees &= (behind >= 0) & (behind < (self.window or math.inf))
        return jnp.where(sees[:, None], scores, HIDDEN)


def _times(probabilities: jax.Array, value: jax.Array) -> jax.Array:
    """float32 `[B, N, C, H]`."""
    rows, heads, count, length = probabilities.shape
    grouped = probabilities.astype(value.dtype).reshape(rows, value.shape[1], -1, count, length)
    found = jnp.einsum("BKGCL,BKLH->BKGCH", grouped, value, preferred_element_type=jnp.float32)
    return found.reshape(rows, heads, count, -1)


def _cut(length: int, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The first query of each block, and the blocks of the arrays, zeros behind the last query."""
    blocks = -(-length // BLOCK)
    size = -(-length // blocks)

    def cut(x: jax.Array) -> jax.Array:
        axis = 1 if x.ndim == 2 else 2  # Segments have no heads.
        padding = [(0, blocks * size - length if at == axis else 0) for at in range(x.ndim)]
        padded = jnp.pad(x, padding).reshape(*x.shape[:axis], blocks, size, *x.shape[axis + 1 :])
        return jnp.moveaxis(padded, axis, 0)

    return jnp.arange(blocks) * size, *map(cut, arrays)


def _whole(blocks: jax.Array, length: int) -> jax.Array:
    """`[B, N, L, …]` of blocks `[blocks, B, N, C, …]`."""
    joined = jnp.moveaxis(blocks, 0, 2)
    return joined.reshape(*joined.shape[:2], -1, *joined.shape[4:])[:, :, :length]
