"""Attention without the TPU kernel, in memory that grows with the length, not with its square.

Queries are computed a block at a time, and each block is recomputed in the backward pass. Early blocks attend only to
a short prefix of the keys, which are cut to it: the work is about half of the full square.

Arrays: B rows, S query positions, T key positions, N query heads, K key heads, G query heads of each, H head width,
V width of the values.
"""

import math

import jax
import jax.numpy as jnp

BLOCK = 512
"""The most queries in a block."""

PREFIXES = 8
"""The most different prefixes of the keys in a program."""


def blocked_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
    *,
    scale: float,
    first: jax.Array | int = 0,
    window: int | None = None,
    softcap: float | None = None,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Softmax of the scores times the values, `[B, S, N, V]`.

    Args:
        query: `[B, S, N, H]`.
        key: `[B, T, K, H]`.
        value: `[B, T, K, V]`.
        query_segments: int32 `[B, S]`; a query attends to keys of its own segment, up to its position.
        key_segments: int32 `[B, T]`.
        scale: of the scores.
        first: index of the key at the position of the first query.
        window: most keys that a query attends to, its own included; None: all.
        softcap: scores s become cap · tanh(s / cap).
        sinks: float32 `[N]`, one more score per head in the softmax, without a value.
    """
    length = query.shape[1]
    if length <= BLOCK:
        return _block(query, key, value, query_segments, key_segments, first, scale, window, softcap, sinks)
    # If `first` is traced, no prefix is known: each block gets all keys.
    groups = min(PREFIXES, -(-length // BLOCK)) if isinstance(first, int) else 1
    size = -(-length // groups)
    found = []
    for start in range(0, length, size):
        end = min(start + size, length)
        low = max(0, first + start + 1 - window) if window and isinstance(first, int) else 0
        high = min(first + end, key.shape[1]) if isinstance(first, int) else key.shape[1]
        queries, segments = query[:, start:end], query_segments[:, start:end]
        keys, values, of_keys = key[:, low:high], value[:, low:high], key_segments[:, low:high]
        at = first + start - low
        found.append(_in_blocks(queries, keys, values, segments, of_keys, at, scale, window, softcap, sinks))
    return jnp.concatenate(found, axis=1)


def _in_blocks(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
    first: jax.Array | int,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: jax.Array | None,
) -> jax.Array:
    rows, length = query_segments.shape
    blocks = -(-length // BLOCK)
    size = -(-length // blocks)
    padding = blocks * size - length

    def cut(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, ((0, 0), (0, padding)) + ((0, 0),) * (x.ndim - 2))
        return jnp.moveaxis(padded.reshape(rows, blocks, size, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def one(each: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        queries, segments, number = each
        return _block(queries, key, value, segments, key_segments, first + number * size, scale, window, softcap, sinks)

    found = jax.lax.map(one, (cut(query), cut(query_segments), jnp.arange(blocks)))
    return jnp.moveaxis(found, 0, 1).reshape(rows, blocks * size, *found.shape[3:])[:, :length]


def _block(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
    first: jax.Array | int,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: jax.Array | None,
) -> jax.Array:
    rows, length, heads, width = query.shape
    key_heads = key.shape[2]
    grouped = query.reshape(rows, length, key_heads, heads // key_heads, width)
    scores = jnp.einsum("BSKGH,BTKH->BKGST", grouped, key, preferred_element_type=jnp.float32) * scale
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    at = first + jnp.arange(length)
    behind = at[:, None] - jnp.arange(key.shape[1])[None, :]
    sees = (behind >= 0) & (behind < (window or math.inf))
    sees = sees & (query_segments[:, :, None] == key_segments[:, None, :])
    # A padded query may attend to no key: with -inf instead of a large negative score, its softmax would be NaN.
    scores = jnp.where(sees[:, None, None], scores, -1e30)
    of_heads = None if sinks is None else sinks.reshape(1, key_heads, -1, 1, 1)
    probabilities = softmax(scores, of_heads).astype(value.dtype)
    seen = jnp.einsum("BKGST,BTKV->BSKGV", probabilities, value)
    return seen.reshape(rows, length, heads, -1)


def softmax(scores: jax.Array, sinks: jax.Array | None) -> jax.Array:
    """The softmax over the last dimension; a sink counts in the denominator only.

    Args:
        scores: float32.
        sinks: with as many dimensions as `scores`, the last of size 1; None: there are none.
    """
    if sinks is None:
        return jax.nn.softmax(scores, axis=-1)
    most = jax.lax.stop_gradient(jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), sinks))
    powers = jnp.exp(scores - most)
    return powers / (jnp.sum(powers, axis=-1, keepdims=True) + jnp.exp(sinks - most))
