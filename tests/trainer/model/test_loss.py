import jax
import numpy as np
import pytest

from tpujob_trainer.model.loss import CHUNK_BYTES, cross_entropy, num_chunks


@pytest.mark.parametrize("chunks", [2, 3, 5, 7, 10])
def test_chunks_change_neither_loss_nor_gradient(chunks: int) -> None:
    rng = np.random.default_rng(chunks)
    hidden = rng.normal(size=(3, 10, 8)).astype(np.float32)
    output = rng.normal(size=(8, 17)).astype(np.float32)
    targets = rng.integers(0, 17, (3, 10))
    mask = rng.random((3, 10)) < 0.7

    def loss(hidden: np.ndarray, output: np.ndarray, chunks: int) -> jax.Array:
        return cross_entropy(hidden, output, targets, mask, chunks=chunks)

    value_and_grad = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
    whole, cut = value_and_grad(hidden, output, 1), value_and_grad(hidden, output, chunks)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole, cut)


def test_the_loss_is_minus_log_of_the_probability() -> None:
    hidden, output = np.zeros((1, 2, 4), np.float32), np.zeros((4, 8), np.float32)
    loss = cross_entropy(hidden, output, np.zeros((1, 2), int), np.array([[True, False]]), chunks=1)
    assert float(loss) == pytest.approx(np.log(8), rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "length", "vocabulary", "chunks"),
    [(2, 128, 384, 1), (1, 8192, 128_256, 16), (4, 8192, 128_256, 63), (1, 4, 2**30, 4)],
)
def test_logits_stay_within_the_limit(rows: int, length: int, vocabulary: int, chunks: int) -> None:
    assert num_chunks(rows, length, vocabulary) == chunks
    assert rows * length * vocabulary * 4 / chunks <= CHUNK_BYTES or chunks == length
