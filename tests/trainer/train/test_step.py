import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer.model import plain_decoder
from tpujob_trainer.model import decoder, partitioning
from tpujob_trainer.model import loss as loss_module
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.save_policy import StepFlags, unpack
from tpujob_trainer.train.step import Batch, TrainState, abstract_state, init_state, make_finite_check, make_train_step

pytestmark = pytest.mark.usefixtures("compiled_once")

SHAPE = ModelShape(
    layers=2, embed_dim=16, heads=2, kv_heads=1, head_dim=8, mlp_dim=24, vocab_size=32, tie_embeddings=True
)
ROWS, LENGTH = 16, 6
SGD = optax.sgd(1.0)
"""With it a step's change is the gradient."""


def make_batch(vocab_size: int = 32) -> Batch:
    rng = np.random.default_rng(1)
    segments = np.sort(rng.integers(1, 3, (ROWS, LENGTH)), axis=1).astype(np.int32)
    first = np.array([[np.flatnonzero(row == segment)[0] for segment in row] for row in segments])
    return Batch(
        inputs=rng.integers(0, vocab_size, (ROWS, LENGTH), np.int32),
        targets=rng.integers(0, vocab_size, (ROWS, LENGTH), np.int32),
        segment_ids=segments,
        positions=(np.arange(LENGTH) - first).astype(np.int32),
        loss_mask=rng.random((ROWS, LENGTH)) < 0.8,
        signals=np.tile(StepFlags().pack(), (ROWS, 1)),
    )


@functools.cache
def plain(tie_embeddings: bool) -> tuple[Any, Any, Any]:
    """Weights, loss and gradient of the model written plainly, on one device."""
    shape = dataclasses.replace(SHAPE, tie_embeddings=tie_embeddings)
    alone = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    weights = jax.tree.map(lambda w: 5 * np.asarray(w), init_state(alone, SGD, 0).weights)
    loss, gradient = jax.jit(jax.value_and_grad(lambda w: plain_decoder.mean_loss(w, make_batch(), shape)))(weights)
    return jax.tree.map(np.asarray, (weights, loss, gradient))


@pytest.mark.parametrize(
    ("devices", "slices", "accumulation", "changes"),
    [
        pytest.param(2, 1, 1, {}, id="fsdp 2"),
        pytest.param(
            8,
            2,
            1,
            {"remat": "full", "line": 2, "at_once_bytes": 0},
            id="2 slices, remat, layer by layer, scattered side by side",
        ),
        pytest.param(
            4,
            1,
            2,
            {"tie_embeddings": False, "chunk_bytes": 256, "at_once_bytes": 0, "remat": "dots"},
            id="accumulated, chunked, layer by layer, untied",
        ),
        pytest.param(2, 2, 4, {}, id="replicas, accumulated"),
    ],
)
def test_a_step_has_the_plain_loss_and_gradient(
    devices: int, slices: int, accumulation: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_BYTES", changes.pop("chunk_bytes", loss_module.CHUNK_BYTES))
    line = changes.pop("line", 1)
    monkeypatch.setattr(partitioning, "_line", lambda mesh: line)
    at_once = changes.pop("at_once_bytes", decoder.GATHERED_AT_ONCE_BYTES)
    monkeypatch.setattr(decoder, "GATHERED_AT_ONCE_BYTES", at_once)
    shape = dataclasses.replace(SHAPE, **changes)
    weights, loss, gradient = plain(shape.tie_embeddings)
    model = Model(shape, build_mesh(slices=slices, devices=jax.devices()[:devices]))
    step = make_train_step(model, SGD, optax.constant_schedule(1.0), clip_norm=1e9, gradient_accumulation=accumulation)
    state = TrainState(jnp.zeros((), jnp.int32), weights, SGD.init(weights))
    after, metrics = step(
        jax.device_put(state, jax.tree.map(lambda a: a.sharding, abstract_state(model, SGD))), make_batch()
    )

    np.testing.assert_allclose(metrics.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.gradient_norm, optax.tree.norm(gradient), rtol=1e-4)
    assert int(metrics.tokens) == make_batch().loss_mask.sum()
    assert int(after.step) == 1
    # Float32 sums in another order; gradients here are about 1e-2.
    found = jax.tree.map(lambda before, now: before - np.asarray(now), weights, after.weights)
    jax.tree.map(lambda f, g: np.testing.assert_allclose(f, g, rtol=2e-3, atol=2e-6), found, gradient)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:4]))


def test_matrices_are_divided_and_their_moments_too(model: Model) -> None:
    optimizer = optax.adamw(1e-3)
    state = init_state(model, optimizer, 0)
    moments = state.optimizer[0]
    for tree in (state.weights, moments.mu, moments.nu):
        query = tree["layers"]["attention"]["query"]
        assert query.shape == (2, 16, 2, 8)
        assert query.addressable_shards[0].data.shape == (2, 4, 2, 8)
    for found, told in zip(jax.tree.leaves(state), jax.tree.leaves(abstract_state(model, optimizer)), strict=True):
        assert (found.shape, found.dtype) == (told.shape, told.dtype)
        assert found.sharding.is_equivalent_to(told.sharding, found.ndim)


def test_fresh_weights_do_not_depend_on_the_mesh(model: Model) -> None:
    alone = Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:1]))
    first, second = (init_state(m, SGD, 7).weights for m in (model, alone))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_a_step_clips_and_one_that_is_not_finite_counts_and_changes_no_weight(model: Model) -> None:
    optimizer = optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda _: -1.0))
    step = make_train_step(model, optimizer, optax.constant_schedule(0.25), clip_norm=1e-3)
    state = init_state(model, optimizer, 0)
    fresh = jax.tree.map(np.array, state.weights)  # copies: a view would keep the memory
    batch = make_batch()
    batch.signals[5] = StepFlags(stop=True, seconds_left=12.0).pack()
    batch.signals[9] = StepFlags(save=True, save_seconds=3.2).pack()
    after, metrics = step(state, batch)
    before = jax.tree.map(np.array, after)
    change = optax.tree.norm(jax.tree.map(lambda a, b: a - b, fresh, before.weights))
    np.testing.assert_allclose(change, 1e-3, rtol=1e-3)
    assert float(metrics.gradient_norm) > 1e-2
    assert float(metrics.learning_rate) == 0.25
    assert unpack(np.asarray(metrics.signals)) == StepFlags(stop=True, seconds_left=12.0, save=True, save_seconds=4.0)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.weights)), "the state's memory is not reused"

    batch.targets[batch.loss_mask.nonzero()[0][0], batch.loss_mask.nonzero()[1][0]] = 999  # has no logit
    after, metrics = step(after, batch)
    assert not np.isfinite(metrics.loss)
    jax.tree.map(np.testing.assert_array_equal, before.weights, after.weights)
    assert int(after.step) == 2
    (momentum, counted), (kept, counted_before) = after.optimizer, before.optimizer
    assert int(counted.count) == int(counted_before.count) + 1 == 2
    jax.tree.map(np.testing.assert_array_equal, momentum, kept)


def test_one_weight_that_is_not_finite_is_found(model: Model) -> None:
    weights = init_state(model, SGD, 0).weights
    scale = weights["norm"]["scale"]
    query = weights["layers"]["attention"]["query"]
    check = make_finite_check(model)
    assert np.asarray(check(weights))
    for path, leaf, where in (("norm", scale, (3,)), ("query", query, (1, 15, 1, 7))):
        bad = jax.jit(lambda x, at=where: x.at[at].set(np.inf), out_shardings=leaf.sharding)(leaf)
        changed = jax.tree.map(lambda old, kept=leaf, new=bad: new if old is kept else old, weights)
        assert not np.asarray(check(changed)), path


def test_z_loss_changes_the_step_and_not_what_is_shown() -> None:
    weights, loss, gradient = plain(SHAPE.tie_embeddings)
    model = Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:1]))
    step = make_train_step(model, SGD, optax.constant_schedule(1.0), clip_norm=1e9, z_loss=0.5)
    _, metrics = step(TrainState(jnp.zeros((), jnp.int32), weights, SGD.init(weights)), make_batch())
    assert float(metrics.loss) == pytest.approx(float(loss), rel=1e-5)
    assert float(metrics.gradient_norm) > 1.2 * optax.tree.norm(gradient)
