"""Attention a block at a time, against the whole square of scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.attention import blocked as module
from tpujob_trainer.model.attention.blocked import blocked_attention

LENGTH, HEADS, KEY_HEADS, WIDTH = 41, 4, 2, 6


def arrays() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    query, key, value = (
        rng.normal(size=(2, LENGTH, heads, WIDTH)).astype(np.float32) for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    segments = np.sort(rng.integers(0, 3, (2, LENGTH)), axis=1).astype(np.int32)
    return query, key, value, segments


def square(query, key, value, segments, *, scale, window=None, softcap=None):
    key, value = (np.repeat(x, HEADS // KEY_HEADS, axis=2) for x in (key, value))
    scores = jnp.einsum("bsnh,btnh->bnst", query, key) * scale
    scores = scores if softcap is None else softcap * jnp.tanh(scores / softcap)
    at = np.arange(LENGTH)
    sees = (at[:, None] >= at) & (at[:, None] - at < (window or LENGTH))
    sees = sees & (segments[:, :, None] == segments[:, None, :])
    return jnp.einsum("bnst,btnh->bsnh", jax.nn.softmax(jnp.where(sees[:, None], scores, -jnp.inf), axis=-1), value)


@pytest.mark.parametrize(
    ("block", "changes"),
    [(4, {}), (4, {"window": 7, "softcap": 2.0}), (16, {"window": 7}), (512, {"softcap": 2.0})],
    ids=["blocks", "window over several blocks, soft cap", "window within a block", "one block, soft cap"],
)
def test_blocks_equal_the_whole_square(block: int, changes: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    query, key, value, segments = arrays()

    def of(function, *args):
        return jnp.sum(jnp.sin(function(*args, scale=0.7, **changes)))

    found = jax.value_and_grad(lambda *x: of(blocked_attention, *x, segments, segments), argnums=(0, 1, 2))
    told = jax.value_and_grad(lambda *x: of(square, *x, segments), argnums=(0, 1, 2))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        jax.jit(found)(query, key, value),
        jax.jit(told)(query, key, value),
    )


def test_memory_grows_with_the_length_not_its_square() -> None:
    def temporaries(length: int) -> int:
        x = jax.ShapeDtypeStruct((1, length, 1, 8), jnp.float32)
        ids = jax.ShapeDtypeStruct((1, length), jnp.int32)

        def loss(q, k, v, segments):
            return jnp.sum(blocked_attention(q, k, v, segments, segments, scale=1.0))

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x, ids).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # The square of scores alone is 4 bytes · 8192² = 268 MB.
    long = temporaries(8192)
    assert long < 5 * temporaries(2048)
    assert long < 100e6


def test_queries_may_begin_further_on() -> None:
    query, key, value, segments = arrays()
    whole = jax.jit(lambda: blocked_attention(query, key, value, segments, segments, scale=1.0))()
    part = jax.jit(
        lambda first: blocked_attention(query[:, 20:], key, value, segments[:, 20:], segments, scale=1.0, first=first)
    )
    np.testing.assert_allclose(part(20), whole[:, 20:], rtol=1e-5, atol=1e-6)
