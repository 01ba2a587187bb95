import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.corpus.extract.rows_apart import one_to_a_sequence
from tpujob_trainer.corpus.extract.sequences import keep
from tpujob_trainer.corpus.workers.results import add_statistics

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
LENGTHS = np.array([5, 2, 0], dtype=np.int32)


def alone(lengths, length):
    """Sequences of one row each."""
    return one_to_a_sequence(np.zeros((len(lengths), length), np.int32), np.array(lengths, np.int32))


SEQUENCES = alone(LENGTHS, 5)
REAL = np.arange(5) < LENGTHS[:, None]


def _keep(**arguments):
    kept = keep(jnp.array(X), SEQUENCES, **arguments)
    # A row to a sequence: [B, 1, D] is [B, D] here.
    return {name: np.asarray(x[:, 0] if name != "sums" and x.shape[1:2] == (1,) else x) for name, x in kept.items()}


def test_all_positions_are_as_they_are():
    np.testing.assert_array_equal(_keep(positions="all", dtype="float32")["values"], X)


def test_last_is_the_last_token():
    found = _keep(positions="last", dtype="float32")["values"]
    np.testing.assert_array_equal(found[:2], [X[0, 4], X[1, 1]])


def test_mean_leaves_padding_out():
    found = _keep(positions="mean", dtype="float32")["values"]
    np.testing.assert_allclose(found[:2], [X[0].mean(axis=0), X[1, :2].mean(axis=0)], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2**-10), ("bfloat16", 2**-7)])
def test_narrow_types_round(dtype, tolerance):
    found = _keep(positions="all", dtype=dtype)["values"]
    assert found.dtype.name == dtype
    np.testing.assert_allclose(found.astype(np.float32), X, rtol=tolerance)


@pytest.mark.parametrize(("positions", "shape"), [("all", (3, 5)), ("last", (3,))])
def test_int8_within_half_a_step(positions, shape):
    wide = _keep(positions=positions, dtype="float32")["values"]
    kept = _keep(positions=positions, dtype="int8")
    assert kept["scales"].shape == shape
    assert kept["values"].dtype == np.int8
    error = np.abs(kept["values"] * kept["scales"][..., None] - wide)
    assert (error <= kept["scales"][..., None] * 0.5001).all()


def test_int8_of_zeros_is_zero():
    kept = keep(jnp.zeros((1, 2, 4)), alone([2], 2), positions="all", dtype="int8")
    np.testing.assert_array_equal(kept["values"], 0)


def test_statistics_leave_padding_out():
    sums = _keep(positions="all", dtype="float32")["sums"]
    real = X[REAL]
    expected = np.array([real.size, real.sum(), (real**2).sum(), real.min(), real.max(), 0])
    np.testing.assert_allclose(sums, expected, rtol=1e-5)


def test_overflow_is_counted():
    x = jnp.full((1, 2, 4), 1e6)
    sums = keep(x, alone([2], 2), positions="all", dtype="float16")["sums"]
    assert sums.tolist()[0] == 8
    assert sums.tolist()[5] == 8


def test_statistics_of_two_batches():
    assert add_statistics(None, [1, 2, 3, -4, 5, 0]) == [1, 2, 3, -4, 5, 0]
    assert add_statistics([1, 2, 3, -4, 5, 0], [1, 1, 1, -9, 2, 1]) == [2, 3, 4, -9, 5, 1]
