"""What a step says of itself on two slices: a row of any device counts, and the rate is that of its own step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.train.test_step import ROWS, SGD, SHAPE, make_batch
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.train.compile.collectives import exchanges
from tpujob_trainer.train.save_policy import StepFlags, unpack
from tpujob_trainer.train.step import (
    TrainStep,
    abstract_batch,
    abstract_state,
    init_state,
    make_train_step,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def rate(step: jax.typing.ArrayLike) -> jax.Array:
    return 0.5 / (1.0 + jnp.asarray(step, jnp.float32))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHAPE, build_mesh(slices=2, devices=jax.devices()[:4]))


@pytest.fixture(scope="module")
def step(model: Model, compiled_once: None) -> TrainStep:
    return make_train_step(model, SGD, rate, clip_norm=1.0)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(MeshShape(slice=2, fsdp=2), "float32"), (MeshShape(data=2, fsdp=2), "bfloat16")],
    ids=["slices", "data, bfloat16"],
)
def test_replicas_exchange_gradients_once_a_step(shape: MeshShape, dtype: str) -> None:
    mesh = build_mesh(slices=shape.slice, devices=jax.devices()[:4], shape=shape)
    model = Model(dataclasses.replace(SHAPE, compute_dtype=dtype), mesh)

    def between_replicas(parts: int) -> int:
        step = make_train_step(model, SGD, rate, clip_norm=1.0, gradient_accumulation=parts)
        lowered = step.lower(abstract_state(model, SGD), abstract_batch(model, 32, 8))  # type: ignore[attr-defined]
        found = exchanges(lowered.compile().as_text(), devices_per_slice=2)
        return sum(each.sent_bytes for each in found if each.is_between_slices)

    once = 2 * 4 * SHAPE.num_parameters // 2 * (2 - 1) / 2  # an all-reduce of each device's part, in float32
    assert between_replicas(2) == between_replicas(4) == pytest.approx(once, rel=0.1)


def test_flags_of_any_row_reach_everybody_and_the_rate_is_that_of_the_step(model: Model, step: TrainStep) -> None:
    state = init_state(model, SGD, 0)
    rates = []
    for row in (0, ROWS // 2 - 1, ROWS // 2, ROWS - 1):
        batch = make_batch()
        batch.signals[row] = StepFlags(stop=True, seconds_left=9.0).pack()
        state, metrics = step(state, batch)
        assert unpack(np.asarray(metrics.signals)) == StepFlags(stop=True, seconds_left=9.0), row
        rates.append(float(metrics.learning_rate))
    assert rates == [pytest.approx(0.5 / number) for number in (1, 2, 3, 4)]
