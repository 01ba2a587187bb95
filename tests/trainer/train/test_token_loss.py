"""A loss and an optimizer of the user's own, beside those that are built in."""

import dataclasses
import functools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer.model import plain_decoder
from tests.trainer.train.test_step import SGD, SHAPE, make_batch
from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.train import token_loss
from tpujob_trainer.train.evaluation import make_evaluation_step
from tpujob_trainer.train.optimizer import make_optimizer
from tpujob_trainer.train.step import abstract_state, init_state, make_train_step
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

DIVIDED = MeshShape(slice=2, context=2, tensor=2)
"""Rows, positions, words, and embeddings over the axis of positions: all that a loss sums over."""
SOFT = dataclasses.replace(SHAPE, layers=1, kv_heads=2, logit_softcap=3.0)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("theirs")
    vars(made).update(
        plain=optax.softmax_cross_entropy_with_integer_labels,
        top1=lambda logits, targets: jnp.argmax(logits, -1) == targets,
        broken=lambda logits: logits,
        whole=lambda logits, targets: jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, targets)),
        make=lambda schedule, momentum: optax.sgd(schedule, momentum=momentum),
        nothing=lambda schedule: None,
    )
    monkeypatch.setitem(sys.modules, "theirs", made)


def test_own_cross_entropy_is_the_built_in_one_and_metrics_see_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_loss, "CHUNK_BYTES", 512)
    model = Model(SOFT, build_mesh(slices=DIVIDED.slice, shape=DIVIDED))
    batch = make_batch()
    found = []
    for loss, parts, metrics in ((None, 1, []), ("theirs:plain", 2, ["theirs:top1", "theirs:plain"])):
        step = make_train_step(model, SGD, lambda _: 1.0, clip_norm=1e6, loss=loss)
        fresh = init_state(model, SGD, 0)
        weights = jax.tree.map(np.array, fresh.weights)
        rows = make_evaluation_step(model, parts=parts, loss=loss, metrics=metrics)(fresh.weights, batch)
        state, shown = step(fresh, batch)
        found.append((jax.tree.map(np.asarray, state.weights), float(shown.loss), rows))
    (after, built_in, rows), (own_after, own_loss, own) = found
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), own_after, after)
    assert own_loss == pytest.approx(built_in, rel=1e-6)
    np.testing.assert_allclose(own.losses, rows.losses, rtol=1e-5)
    of_rows = jax.jit(jax.vmap(functools.partial(plain_decoder.logits, weights, shape=SOFT)))
    logits = of_rows(batch.inputs, batch.positions, batch.segment_ids)  # without the cap, which changes no order
    right = (np.argmax(logits, -1) == batch.targets) & batch.loss_mask.astype(bool)
    np.testing.assert_array_equal(own.metrics[0], right.sum(axis=1))
    np.testing.assert_allclose(own.metrics[1], own.losses, rtol=1e-5)


def test_metric_that_cannot_be_called_so_is_refused() -> None:
    model = Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:1]))
    step = make_evaluation_step(model, metrics=["theirs:top1", "theirs:broken"])
    with pytest.raises(
        ConfigurationError, match=r"evaluation\.metrics\[1\]\.name: theirs:broken failed: TypeError: .* positional"
    ):
        jax.eval_shape(step, model.abstract_weights, make_batch())


def test_loss_of_another_shape_is_refused() -> None:
    model = Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:1]))
    step = make_train_step(model, SGD, lambda _: 1.0, clip_norm=1.0, loss="theirs:whole")
    with pytest.raises(ConfigurationError, match=r"trainer.loss: theirs:whole gives \[\] for .* a number for each"):
        jax.eval_shape(step, abstract_state(model, SGD), make_batch())


def test_own_optimizer_gets_schedule_and_arguments() -> None:
    config = OptimizerConfig(custom="theirs:make", arguments={"momentum": 0.5})
    optimizer = make_optimizer(config, lambda _: 0.25)
    weights = {"a": jnp.ones(2)}
    updates, _ = optimizer.update({"a": jnp.ones(2)}, optimizer.init(weights), weights)
    np.testing.assert_allclose(updates["a"], -0.25)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OptimizerConfig(custom="theirs:make"), r"theirs:make\(schedule\) failed: TypeError"),
        (OptimizerConfig(custom="theirs:nothing"), "gives a NoneType; it must give an optax.GradientTransformation"),
        (OptimizerConfig(custom="theirs:plane"), "theirs has no 'plane'"),
    ],
)
def test_what_is_no_optimizer_is_refused(config: OptimizerConfig, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^spec.trainer.optimizer.custom: .*{message}"):
        make_optimizer(config, lambda _: 0.1)
