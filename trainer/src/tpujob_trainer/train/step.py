"""The train step: a pure function of (state, batch), without clock, process or I/O.

It is written for whole arrays; `partitioning` defines their shardings, and the compiler adds the collectives. An
optimizer sees whole arrays, too.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.model.axes import REPLICA_AXES
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED, ROWS, lying, of_each_replica
from tpujob_trainer.train.save_policy import COLUMNS
from tpujob_trainer.train.token_loss import RouterFactors, TokenLoss


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state that a step updates."""

    step: jax.Array
    """int32: steps done."""
    weights: Weights
    optimizer: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """A global batch with its rows divided over all devices. B rows, S positions."""

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
    """int32 [B, 5]: the flags of each row's process for the others; see step_flags.py."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepMetrics:
    """The metrics of a step, replicated on all processes."""

    loss: jax.Array
    """Mean over the positions that count, before the update."""
    gradient_norm: jax.Array
    """Global norm before clipping."""
    learning_rate: jax.Array
    tokens: jax.Array
    """int32: number of positions that count."""
    signals: jax.Array
    """int32 [5]: the maximum of each column over all rows."""


def state_specs(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """The partition of every array of the state: moments as their weights, everything else replicated."""
    leaves, structure = jax.tree.flatten_with_path(model.abstract_weights)
    of_weights = {
        _names(path): (leaf.shape, spec)
        for (path, leaf), spec in zip(leaves, structure.flatten_up_to(model.specs), strict=True)
    }

    def spec_of(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
        names = _names(path)
        for start in range(len(names)):
            shape, spec = of_weights.get(names[start:], (None, REPLICATED))
            if shape == leaf.shape:
                return spec
        return REPLICATED

    moments = jax.eval_shape(optimizer.init, model.abstract_weights)
    return TrainState(step=REPLICATED, weights=model.specs, optimizer=jax.tree.map_with_path(spec_of, moments))


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The dictionary keys of a path: other parts of an optimizer's state have no such names."""
    return tuple(part.key for part in path if isinstance(part, jax.tree_util.DictKey))


def state_shardings(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """The sharding of every array of the state."""
    return jax.tree.map(lambda spec: NamedSharding(model.mesh, spec), state_specs(model, optimizer))


def abstract_batch(model: Model, rows: int, length: int) -> Batch:
    """Shape, type and sharding of every array of a batch."""
    sharding = NamedSharding(model.mesh, ROWS)

    def of(dtype: Any, *dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, *dims), dtype, sharding=sharding)

    ids = of(jnp.int32, length)
    return Batch(ids, ids, ids, ids, of(jnp.bool_, length), of(jnp.int32, COLUMNS))


def abstract_state(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """Shape, type and sharding of every array of the state."""
    shapes = TrainState(
        step=jax.ShapeDtypeStruct((), jnp.int32),
        weights=model.abstract_weights,
        optimizer=jax.eval_shape(optimizer.init, model.abstract_weights),
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        state_shardings(model, optimizer),
    )


def init_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """A fresh state, created on the devices that keep it."""

    def make() -> TrainState:
        weights = model.init(seed)
        return TrainState(step=jnp.zeros((), jnp.int32), weights=weights, optimizer=optimizer.init(weights))

    # LLVM takes many seconds to optimise random number generation, which runs once.
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    state: TrainState = jax.jit(make, out_shardings=state_shardings(model, optimizer), compiler_options=quick)()
    return state


def state_from(model: Model, optimizer: optax.GradientTransformation, weights: Weights) -> TrainState:
    """The state before the first step with these weights, which are donated."""

    def make(weights: Weights) -> TrainState:
        return TrainState(step=jnp.zeros((), jnp.int32), weights=weights, optimizer=optimizer.init(weights))

    return jax.jit(make, out_shardings=state_shardings(model, optimizer), donate_argnums=0)(weights)


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]


def make_train_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    *,
    clip_norm: float,
    gradient_accumulation: int = 1,
    z_loss: float = 0.0,
    router: RouterFactors | None = None,
    loss: str | None = None,
    seed: int = 0,
) -> TrainStep:
    """The jitted step. It donates the state that it gets, which must not be used again.

    A step whose loss or gradient is not finite, or whose batch is empty, counts, and changes no weight and no moment.

    Args:
        model: The model to train.
        optimizer: For whole arrays.
        schedule: Learning rate by step, for the metrics; the same as in the optimizer.
        clip_norm: Gradients of a larger global norm are scaled down to it.
        gradient_accumulation: Number of parts in which the gradient of a batch is computed, one after the other.
        z_loss: Factor of the term that keeps logits from drifting; see `loss.cross_entropy`.
        router: Factors of the losses of a mixture's routers; None: all are 0.
        loss: `module:name` of a function from logits and targets to losses; None: cross-entropy.
        seed: Of a model's dropout, which depends on it, the step and the part of the batch.

    Raises:
        ConfigurationError: there is no such function.
    """
    minimised = TokenLoss(model, custom=loss, z_loss=z_loss, router=router)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(jax.random.key(seed), state.step) if model.has_dropout else None
        total, gradients = _gradients(minimised, state.weights, batch, gradient_accumulation, key)
        count = jnp.sum(batch.loss_mask, dtype=jnp.int32)
        scale = 1.0 / jnp.maximum(count, 1).astype(jnp.float32)
        norm = optax.tree.norm(gradients) * scale
        scale_clipped = scale * jnp.minimum(1.0, clip_norm / jnp.maximum(norm, 1e-30))
        gradients = jax.tree.map(lambda gradient: gradient * scale_clipped, gradients)
        updates, moments = optimizer.update(gradients, state.optimizer, state.weights)
        weights = optax.apply_updates(state.weights, updates)
        # A batch after the end of the data has no position that counts: it must not decay the weights.
        is_taken = jnp.isfinite(total * scale) & jnp.isfinite(norm) & (count > 0)
        metrics = StepMetrics(
            loss=total * scale,
            gradient_norm=norm,
            learning_rate=jnp.asarray(schedule(state.step), jnp.float32),
            tokens=count,
            signals=jnp.max(batch.signals, axis=0),
        )
        after = TrainState(
            state.step + 1, _chosen(is_taken, weights, state.weights), _chosen(is_taken, moments, state.optimizer)
        )
        return after, metrics

    of_state = state_shardings(model, optimizer)
    of_batch, whole = NamedSharding(model.mesh, ROWS), NamedSharding(model.mesh, REPLICATED)
    return jax.jit(step, donate_argnums=0, in_shardings=(of_state, of_batch), out_shardings=(of_state, whole))


def make_finite_check(model: Model) -> Callable[[Weights], jax.Array]:
    """The jitted function from weights to whether all of them are finite, replicated on all processes."""

    def are_finite(weights: Weights) -> jax.Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]))

    return jax.jit(are_finite, out_shardings=NamedSharding(model.mesh, REPLICATED))


def _chosen(is_taken: jax.Array, new: Any, old: Any) -> Any:
    """`new` if the step is taken, else `old`; integers are step counts, and always new."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return new if jnp.issubdtype(new.dtype, jnp.integer) else jnp.where(is_taken, new, old)

    return jax.tree.map(choose, new, old)


def _gradients(
    loss: TokenLoss, weights: Weights, batch: Batch, parts: int, dropout_key: jax.Array | None
) -> tuple[jax.Array, Weights]:
    """The sum of the loss over all rows, and its gradient, sharded as the weights."""
    model = loss.model
    replicas = math.prod(model.mesh.shape[axis] for axis in REPLICA_AXES)
    if parts == 1 or replicas == 1 or not loss.is_sum_over_rows:
        return _accumulated(loss, weights, batch, parts, dropout_key)

    def of_replica(weights: Weights, batch: Batch) -> tuple[jax.Array, Weights]:
        """Adds the parts of a replica, so that replicas exchange gradients once, in the compute dtype."""
        total, gradients = _accumulated(loss, weights, batch, parts, None)
        total, gradients = jax.lax.psum((total, model.travelling(gradients)), REPLICA_AXES)
        return total, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradients)

    rows = PartitionSpec(REPLICA_AXES)
    found: tuple[jax.Array, Weights] = of_each_replica(of_replica, model.mesh, (REPLICATED, rows), REPLICATED)(
        weights, batch
    )
    return found


def _accumulated(
    loss: TokenLoss, weights: Weights, batch: Batch, parts: int, dropout_key: jax.Array | None
) -> tuple[jax.Array, Weights]:
    """The same as `_gradients`, for the rows that a replica sees."""
    value_and_grad = jax.value_and_grad(loss.total)
    if parts == 1:
        total, gradients = value_and_grad(weights, batch, dropout_key)
        return total, gradients
    shardings = jax.tree.map(lambda spec: lying(loss.model.mesh, spec), loss.model.specs)

    def add(
        carry: tuple[jax.Array, Weights], given: tuple[Batch, jax.Array | None]
    ) -> tuple[tuple[jax.Array, Weights], None]:
        total, gradients = jax.tree.map(jnp.add, carry, value_and_grad(weights, *given))
        return (total, jax.lax.with_sharding_constraint(gradients, shardings)), None

    zero = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, weights))
    keys = None if dropout_key is None else jax.random.split(dropout_key, parts)
    (total, gradients), _ = jax.lax.scan(add, zero, (in_parts(batch, parts), keys))
    return total, gradients


def in_parts(batch: Batch, parts: int) -> Batch:
    """The batch with a leading dimension of parts; each device divides its own rows, so that no row moves."""
    return jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)


def make_run_step(
    run: ResolvedConfig, model: Model, optimizer: optax.GradientTransformation, schedule: optax.Schedule
) -> TrainStep:
    """The jitted step, as configured.

    Raises:
        ConfigurationError: the function of `loss` does not exist.
    """
    return make_train_step(
        model,
        optimizer,
        schedule,
        clip_norm=run.optimizer.clip_norm,
        gradient_accumulation=run.gradient_accumulation,
        z_loss=run.z_loss,
        router=RouterFactors(run.router_balance_loss, run.router_z_loss),
        loss=run.loss,
        seed=run.seed,
    )
