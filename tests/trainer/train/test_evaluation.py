"""Evaluation against the plain model; that any number of processes finds the same is in tests/multiprocess."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tests.trainer.model import plain_decoder
from tests.trainer.train.test_step import SHAPE, make_batch
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.evaluation import EvaluationStep, evaluate, make_evaluation_step
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import Batch, init_state
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")


@functools.cache
def model(devices: int) -> Model:
    return Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:devices]))


@functools.cache
def weights() -> Any:
    return jax.tree.map(np.asarray, init_state(model(1), optax.identity(), 0).weights)


@functools.cache
def step(devices: int = 2, parts: int = 1) -> EvaluationStep:
    return make_evaluation_step(model(devices), parts=parts)


def masked(batch: Batch, rows: int) -> Batch:
    """The batch with only its first rows counting, as the last one of a set."""
    mask = np.array(batch.loss_mask)
    mask[rows:] = False
    return dataclasses.replace(batch, loss_mask=mask)


@pytest.mark.parametrize(("devices", "parts"), [(1, 1), (2, 1), (2, 2)])
def test_the_mean_is_over_tokens_not_over_batches(devices: int, parts: int) -> None:
    batches = [make_batch(), masked(make_batch(), 3)]
    found = evaluate(step(devices, parts), weights(), batches)
    assert found is not None
    counts = [int(np.sum(batch.loss_mask)) for batch in batches]
    plain = jax.jit(lambda batch: plain_decoder.mean_loss(weights(), batch, SHAPE))
    means = [float(plain(batch)) for batch in batches]
    assert found.tokens == sum(counts)
    # Float32 sums of a row in another order.
    assert found.loss == pytest.approx(np.average(means, weights=counts), rel=1e-6)


def left(batch: Batch, batches_left: int) -> Batch:
    """The batch with what its processes say of those after it."""
    signals = np.tile(StepFlags(batches_left=batches_left).pack(), (len(batch.signals), 1))
    return dataclasses.replace(batch, signals=signals)


def test_batch_without_targets_is_passed_over() -> None:
    batches = [make_batch(), masked(make_batch(), 0), make_batch()]
    found = evaluate(step(), weights(), batches)
    assert found is not None
    assert found.tokens == 2 * int(np.sum(batches[0].loss_mask))


def test_evaluation_ends_with_the_data() -> None:
    batches = [left(make_batch(), 1), left(make_batch(), 0), left(masked(make_batch(), 0), 0)]
    rest = iter(batches)
    found = evaluate(step(), weights(), rest)
    assert found is not None
    assert found.tokens == 2 * int(np.sum(batches[0].loss_mask))
    assert len(list(rest)) == 1


def test_rows_in_another_order_are_the_same_to_the_last_bit() -> None:
    batch = make_batch()
    order = np.random.default_rng(0).permutation(len(batch.inputs))
    moved = jax.tree.map(lambda rows: np.asarray(rows)[order], batch)
    first, second = evaluate(step(), weights(), [batch]), evaluate(step(), weights(), [moved])
    assert first is not None
    assert second is not None
    assert first.loss == second.loss


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_request_to_stop_ends_it(at: int) -> None:
    batches = [make_batch() for _ in range(3)]
    batches[at].signals[5] = StepFlags(stop=True, seconds_left=9).pack()
    taken = []

    def told():
        for batch in batches:
            taken.append(batch)
            yield batch

    assert evaluate(step(), weights(), told()) is None
    assert len(taken) == min(at + 2, 3)


def test_nothing_to_predict_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no token to predict"):
        evaluate(step(), weights(), [masked(make_batch(), 0)])
