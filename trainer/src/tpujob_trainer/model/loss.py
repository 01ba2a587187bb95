"""Cross-entropy in chunks of positions: float32 logits of a whole batch never exist.

For llama3-8b at 8192 positions they would be 4.2 GB for each row of a batch, and their gradient as much again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

CHUNK_BYTES = 256 * 2**20
"""Logits of one chunk on one device."""


def num_chunks(rows: int, length: int, vocab_size: int) -> int:
    """In how many chunks of positions the logits of a device's rows stay within CHUNK_BYTES."""
    return min(length, -(-rows * length * vocab_size * 4 // CHUNK_BYTES))


def cross_entropy(
    hidden: jax.Array, output_weights: jax.Array, targets: jax.Array, mask: jax.Array, *, chunks: int
) -> jax.Array:
    """The sum of -log p(target) over the positions that count, float32.

    Args:
        hidden: `[rows, length, embed]`.
        output_weights: `[embed, vocab]`, of the same type.
        targets: int32 `[rows, length]`.
        mask: bool `[rows, length]`: which positions count.
        chunks: the length is cut into so many, one after the other, and each is recomputed in the backward pass.
    """
    if chunks == 1:
        return _sum(hidden, output_weights, targets, mask)
    rows, length = targets.shape
    padding = -length % chunks

    def cut(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, ((0, 0), (0, padding)) + ((0, 0),) * (x.ndim - 2))
        return jnp.moveaxis(padded.reshape(rows, chunks, -1, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def one(hidden: jax.Array, targets: jax.Array, mask: jax.Array) -> jax.Array:
        return _sum(hidden, output_weights, targets, mask)

    def step(total: jax.Array, chunk: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + one(*chunk), None

    total, _ = jax.lax.scan(step, jnp.zeros((), jnp.float32), (cut(hidden), cut(targets), cut(mask)))
    return total


def _sum(hidden: jax.Array, output_weights: jax.Array, targets: jax.Array, mask: jax.Array) -> jax.Array:
    logits = jnp.einsum("BSD,DV->BSV", hidden, output_weights, preferred_element_type=jnp.float32)
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.sum(jnp.where(mask, jax.nn.logsumexp(logits, axis=-1) - target_logits, 0.0))
