"""The train step: a pure function of (state, batch). No clock, no process, no input or output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.loss import cross_entropy, num_chunks
from tpujob_trainer.model.partitioning import REPLICATED, ROWS, over_rows, sharding_like


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a step changes."""

    step: jax.Array
    """int32: steps done."""
    weights: Weights
    optimizer: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """A global batch, its rows over all devices. B rows, S positions."""

    inputs: jax.Array
    """int32 [B, S]"""
    targets: jax.Array
    """int32 [B, S]"""
    segment_ids: jax.Array
    """int32 [B, S]"""
    positions: jax.Array
    """int32 [B, S]"""
    loss_mask: jax.Array
    """bool [B, S]"""
    signals: jax.Array
    """int32 [B, 4]: what each row's process has to tell the others; see signals.py."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepMetrics:
    """What a step found out; whole on every process."""

    loss: jax.Array
    """Mean over the positions that count, before the update."""
    gradient_norm: jax.Array
    """Global norm before clipping."""
    learning_rate: jax.Array
    tokens: jax.Array
    """int32: positions that count."""
    signals: jax.Array
    """int32 [4]: the greatest of each column over all rows."""


def abstract_state(model: Model, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """Shape, type and place of every array of the state."""
    shardings = state_shardings(model, optimizer, mesh)
    shapes = jax.eval_shape(lambda: init_state(model, optimizer, 0))
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings
    )


def state_shardings(model: Model, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """Where every array of the state lies: moments where their weights do, counters everywhere."""
    weights = model.shardings(mesh)
    moments = jax.eval_shape(optimizer.init, model.abstract_weights)
    return TrainState(
        step=NamedSharding(mesh, REPLICATED),
        weights=weights,
        optimizer=sharding_like(moments, model.abstract_weights, weights, mesh),
    )


def init_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """A fresh state. Jit it with `state_shardings` as output, so that it is made in place."""
    weights = model.init(seed)
    return TrainState(step=jnp.zeros((), jnp.int32), weights=weights, optimizer=optimizer.init(weights))


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]


def make_train_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    *,
    mesh: Mesh,
    gradient_accumulation: int = 1,
) -> TrainStep:
    """The jitted step. It takes the memory of the state it is given, which must not be used again.

    Args:
        model: whose weights are trained.
        optimizer: made with the same schedule.
        schedule: learning rate by step, for the metrics.
        mesh: the devices; set as jax's mesh while the step is traced.
        gradient_accumulation: in how many parts, one after the other, the gradient of a batch is computed.
    """

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        tokens = jnp.sum(batch.loss_mask, dtype=jnp.int32)
        total, gradients = _gradients(model, state.weights, batch, gradient_accumulation, mesh.size)
        scale = 1.0 / jnp.maximum(tokens, 1).astype(jnp.float32)
        gradients = jax.tree.map(lambda gradient: gradient * scale, gradients)
        updates, moments = optimizer.update(gradients, state.optimizer, state.weights)
        metrics = StepMetrics(
            loss=total * scale,
            gradient_norm=optax.global_norm(gradients),
            learning_rate=jnp.asarray(schedule(state.step), jnp.float32),
            tokens=tokens,
            signals=jnp.max(batch.signals, axis=0),
        )
        return TrainState(state.step + 1, optax.apply_updates(state.weights, updates), moments), metrics

    whole = NamedSharding(mesh, REPLICATED)
    shardings = state_shardings(model, optimizer, mesh)
    jitted = jax.jit(
        train_step,
        donate_argnums=0,
        in_shardings=(shardings, NamedSharding(mesh, ROWS)),
        out_shardings=(shardings, whole),
    )

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        with jax.set_mesh(mesh):
            return jitted(state, batch)

    return step


def loss_sum(model: Model, weights: Weights, batch: Batch, num_devices: int) -> jax.Array:
    """The sum of the loss over the positions that count, float32."""
    rows, length = batch.inputs.shape
    decoder = model.bind(weights)
    hidden = decoder(batch.inputs, batch.positions, batch.segment_ids)
    chunks = num_chunks(-(-rows // num_devices), length, model.shape.vocab_size)
    return cross_entropy(hidden, decoder.output_weights(), batch.targets, batch.loss_mask, chunks=chunks)


def _gradients(model: Model, weights: Weights, batch: Batch, parts: int, num_devices: int) -> tuple[jax.Array, Weights]:
    value_and_grad = jax.value_and_grad(lambda weights, batch: loss_sum(model, weights, batch, num_devices))
    if parts == 1:
        total, gradients = value_and_grad(weights, batch)
        return total, gradients

    def split(x: jax.Array) -> jax.Array:
        # Every device splits its own rows. reshape(parts, rows) would send rows from device to device.
        return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

    def add(carry: tuple[jax.Array, Weights], part: Batch) -> tuple[tuple[jax.Array, Weights], None]:
        found = value_and_grad(weights, jax.tree.map(over_rows, part))
        return jax.tree.map(jnp.add, carry, found), None

    zero = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, weights))
    (total, gradients), _ = jax.lax.scan(add, zero, jax.tree.map(split, batch))
    return total, gradients
