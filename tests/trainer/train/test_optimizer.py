from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model.axes import AXES
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.train.optimizer import is_decayed, make_optimizer, make_schedule, partition, rate_change


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.2), (2, 0.6), (4, 1.0), (54, 0.55), (104, 0.1), (200, 0.1)],
    ids=["first", "warming up", "peak", "half-way", "last", "after"],
)
def test_the_rate_rises_then_falls(step: int, rate: float) -> None:
    schedule = make_schedule(OptimizerConfig(learning_rate=1.0, warmup_steps=4), steps=104)
    assert float(schedule(step)) == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"optimizer": []},
        {"optimizer": {"schedule": "no such"}},
        {"optimizer": {"learningRate": None}},
        {"optimizer": {"warmupSteps": "4"}},
        {"steps": "104"},
    ],
    ids=str,
)
def test_a_damaged_record_of_the_rate_before_ends_no_resume(record: Any) -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4)
    assert rate_change(record, config, step=50, steps=104) is None
    assert "was 0.1" in (rate_change({"steps": 50}, config, step=50, steps=104) or "")


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("cosine", {4: 1.0, 54: 0.55, 104: 0.1}),
        ("linear", {4: 1.0, 54: 0.55, 104: 0.1}),
        ("wsd", {4: 1.0, 83: 1.0, 93: 0.571, 104: 0.1, 200: 0.1}),
        ("constant", {4: 1.0, 104: 1.0}),
    ],
)
def test_the_rate_falls_as_the_schedule_says(schedule: Any, rates: dict[int, float]) -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4, schedule=schedule)
    found = make_schedule(config, steps=104)
    assert {step: float(found(step)) for step in rates} == pytest.approx(rates, abs=2e-3)


def test_without_warmup_the_first_step_has_the_peak() -> None:
    schedule = make_schedule(OptimizerConfig(learning_rate=0.5, warmup_steps=0), steps=10)
    assert float(schedule(0)) == 0.5


def test_norms_do_not_decay() -> None:
    weights = {"norm": {"scale": jnp.ones(3)}, "mlp": {"up": jnp.ones((3, 3))}}
    assert is_decayed(weights) == {"norm": {"scale": False}, "mlp": {"up": True}}
    config = OptimizerConfig(learning_rate=0.1, warmup_steps=0, weight_decay=0.5)
    optimizer = make_optimizer(config, make_schedule(config, steps=10))
    zeros = {"norm": {"scale": jnp.zeros(3)}, "mlp": {"up": jnp.zeros((3, 3))}}
    updates, _ = optimizer.update(zeros, optimizer.init(weights), weights)
    after = optax.apply_updates(weights, updates)
    np.testing.assert_array_equal(after["norm"]["scale"], 1.0)
    np.testing.assert_allclose(after["mlp"]["up"], 0.95, rtol=1e-6)


def test_muon_takes_every_matrix_of_every_stack() -> None:
    shape = ModelConfig(preset="deepseek-v3").resolve(vocabulary=2, platform="cpu")
    model = Model(shape, jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(AXES)), AXES))
    labels = jax.tree.leaves_with_path(partition(model.abstract_weights))
    others = {jax.tree_util.keystr(path, simple=True, separator=".") for path, label in labels if label == "adamw"}
    of_layers = {name for name in others if "layers." in name and not name.endswith((".scale", ".router_bias"))}
    assert of_layers == {"layers.experts.router"}
    assert {"embedding", "output"} <= others


def test_moments_decay_with_their_own_betas() -> None:
    """Two updates by hand: Adam's equations (Kingma and Ba, 2015, algorithm 1), with the configuration's betas."""
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0, beta1=0.5, beta2=0.9, epsilon=1e-8, weight_decay=0.0)
    optimizer = make_optimizer(config, optax.constant_schedule(1.0))
    weights = {"up": jnp.zeros(())}
    state = optimizer.init(weights)
    first, second, mean, square = 3.0, -1.0, 0.0, 0.0
    for count, gradient in enumerate((first, second), start=1):
        mean = 0.5 * mean + 0.5 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        updates, state = optimizer.update({"up": jnp.asarray(gradient)}, state, weights)
        expected = -(mean / (1 - 0.5**count)) / ((square / (1 - 0.9**count)) ** 0.5 + 1e-8)
        assert float(updates["up"]) == pytest.approx(expected, rel=1e-5)
