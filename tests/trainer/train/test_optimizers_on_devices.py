"""Every optimizer takes the same steps whatever the number of devices: it sees whole weights."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from tests.trainer.train.test_step import SHAPE, make_batch
from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.optimizer import averaged_weights, make_optimizer, make_schedule
from tpujob_trainer.train.step import abstract_state, make_train_step, state_from

pytestmark = pytest.mark.usefixtures("compiled_once")

STEPS = 4


@functools.cache
def drawn(shape: ModelShape) -> Weights:
    """The first weights, which do not depend on the mesh: see `test_step.py`."""
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    return jax.tree.map(np.asarray, jax.jit(lambda: model.init(0))())


def steps(devices: int, config: OptimizerConfig, shape=SHAPE):
    """The weights before the first step, the state after the last one, and each step's loss."""
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:devices]))
    schedule = make_schedule(config, steps=STEPS)
    optimizer = make_optimizer(config, schedule)
    state = state_from(model, optimizer, jax.device_put(drawn(shape), model.shardings))
    step = make_train_step(model, optimizer, schedule, clip_norm=1.0)
    weights, losses = [jax.tree.map(np.array, state.weights)], []
    for _ in range(STEPS):
        state, metrics = step(state, make_batch())
        losses.append(float(metrics.loss))
        weights.append(jax.tree.map(np.array, state.weights))
    return state, losses, weights


def config_of(name, **more):
    return OptimizerConfig(name=name, learning_rate=0.003, warmup_steps=1, **more)


@pytest.mark.parametrize(("name", "ema_decay"), [("adamw", 0.5), ("lion", None), ("adafactor", None), ("muon", None)])
def test_one_device_and_several_take_the_same_steps(name, ema_decay):
    # Wide enough that adafactor factors its matrices.
    shape = dataclasses.replace(SHAPE, layers=1, embed_dim=128, mlp_dim=128, heads=2, head_dim=64, tie_embeddings=False)
    config = config_of(name, ema_decay=ema_decay)
    (one, losses, _), (several, same, weights) = (steps(devices, config, shape) for devices in (1, 4))

    np.testing.assert_allclose(same, losses, rtol=1e-4)
    assert losses[-1] < losses[0]
    # Sums in another order; lion's updates are signs, and one near zero may turn: it moves by twice the rate.
    far = 0.0
    for a, b in zip(jax.tree.leaves(one.weights), jax.tree.leaves(several.weights), strict=True):
        far = max(far, float(np.mean(np.abs(np.asarray(a) - np.asarray(b)) > 1e-4)))
    assert far <= (0.01 if name == "lion" else 0.001)
    average = averaged_weights(several.optimizer)
    if ema_decay is None:
        assert average is None
        return
    expected, *later = weights
    for now in later:
        expected = jax.tree.map(lambda a, w: 0.5 * a + 0.5 * w, expected, now)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), average, expected)


def test_adafactor_keeps_a_row_and_a_column():
    shape = dataclasses.replace(SHAPE, embed_dim=128, mlp_dim=256)
    config = config_of("adafactor")
    model = Model(shape, build_mesh(slices=1))
    state = abstract_state(model, make_optimizer(config, make_schedule(config, steps=STEPS)))

    sizes = [sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (state.optimizer, state.weights)]
    assert sizes[0] < 0.2 * sizes[1]


def test_muon_moves_matrices_of_layers_by_equal_parts():
    _, _, (before, after, *_) = steps(2, config_of("muon", weight_decay=0.0))

    moved = after["layers"]["mlp"]["up"] - before["layers"]["mlp"]["up"]
    for layer in moved:
        values = np.linalg.svd(layer, compute_uv=False)
        # Five Newton-Schulz steps bring singular values near each other (Jordan 2024), not to equality.
        assert values.max() / values.min() < 3
