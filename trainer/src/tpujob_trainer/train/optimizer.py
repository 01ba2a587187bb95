"""Optimizers and learning rate schedules, for the tree of whole weights."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tpujob_trainer.config.schema import BLOCK, OptimizerConfig
from tpujob_trainer.model.lora import is_adapter
from tpujob_trainer.model.shape import STACKS
from tpujob_trainer.values.errors import ConfigurationError, brief
from tpujob_trainer.values.from_mapping import camel_case
from tpujob_trainer.values.references import load_reference

MUON_RMS = 0.2
"""Root mean square of a Muon update before the learning rate, about that of AdamW's, so that one learning rate and one
decay fit both (Liu and others 2025, Muon is Scalable for LLM Training, section 2.2)."""

_REDUCED = {"query": 1, "key": 1, "value": 1, "out": 2, "gate": 1, "up": 1, "down": 1} | dict.fromkeys(
    ("query_down", "key_value_down", "key_value_up", "turned"), 1
)
"""How many dimensions of a layer's matrix, after its stack, are contracted; the following ones are its output."""


def make_schedule(config: OptimizerConfig, *, steps: int) -> optax.Schedule:
    """The learning rate by step: a linear warm-up to the peak in warmup_steps, then the decay of `schedule`.

    `config` is resolved: learning_rate and warmup_steps are set.
    """
    assert config.learning_rate is not None
    assert config.warmup_steps is not None
    peak = config.learning_rate
    decay = _decay(config, peak, max(steps - config.warmup_steps, 1), steps)
    if not config.warmup_steps:
        return decay
    # warmup_steps + 1 parts, so that the learning rate of the first step is not 0.
    warmup = optax.linear_schedule(peak / (config.warmup_steps + 1), peak, config.warmup_steps)
    return optax.join_schedules([warmup, decay], [config.warmup_steps])


def rate_change(before: Mapping[str, Any], config: OptimizerConfig, *, step: int, steps: int) -> str | None:
    """How the learning rate after `step` steps differs from that of the checkpoint's configuration; None: it does not.

    `before` is as `ResolvedConfig.as_json` has it; `config`, which is resolved, and `steps` are those of this run.
    """
    of_schedule = ("schedule", "decay_fraction", "learning_rate", "warmup_steps", "final_learning_rate_fraction")
    try:
        optimizer, steps_before = before.get("optimizer") or {}, before.get("steps", steps)
        stored = {name: optimizer[key] for name in of_schedule if (key := camel_case(name)) in optimizer}
        was = float(make_schedule(dataclasses.replace(config, **stored), steps=steps_before)(step))
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return None  # a damaged record ends no resume: nothing but this sentence comes of it
    rate = float(make_schedule(config, steps=steps)(step))
    if math.isclose(rate, was, rel_tol=0.01):
        return None
    return (
        f"The learning rate of step {step + 1} is {rate:.3g}; by the configuration of the checkpoint, with steps "
        f"{steps_before}, it was {was:.3g}: the schedule spans all steps, {steps} now. To keep it: "
        f"optimizer: {{schedule: constant, learningRate: {was:.3g}, warmupSteps: 0}}"
    )


def _decay(config: OptimizerConfig, peak: float, left: int, steps: int) -> optax.Schedule:
    end = peak * config.final_learning_rate_fraction
    if config.schedule == "constant":
        return optax.constant_schedule(peak)
    if config.schedule == "linear":
        return optax.linear_schedule(peak, end, left)
    if config.schedule == "wsd":
        falling = min(left, max(1, round(config.decay_fraction * steps)))
        return optax.linear_schedule(peak, end, falling, transition_begin=left - falling)
    return optax.cosine_decay_schedule(peak, left, alpha=config.final_learning_rate_fraction)


def make_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule, *, has_adapters: bool = False
) -> optax.GradientTransformation:
    """The optimizer; norms (`scale`) and biases are not decayed. The step clips gradients before it."""
    optimizer = _optimizer(config, schedule)
    if has_adapters:
        return adapters_only(optimizer)
    if config.ema_decay is None:
        return optimizer
    return optax.chain(optimizer, average_weights(config.ema_decay))


def _optimizer(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    if config.custom is not None:
        return _own(config.custom, dict(config.arguments or {}), schedule)
    if config.name == "lion":
        return optax.lion(schedule, b1=config.beta1, b2=config.beta2, weight_decay=config.weight_decay, mask=is_decayed)
    if config.name == "adafactor":
        return optax.chain(
            optax.scale_by_factored_rms(),
            optax.clip_by_block_rms(1.0),
            optax.add_decayed_weights(config.weight_decay, is_decayed),
            optax.scale_by_learning_rate(schedule),
        )
    adam = {"b1": config.beta1, "b2": config.beta2, "eps": config.epsilon}
    if config.name == "muon":
        adamw = optax.adamw(schedule, **adam, weight_decay=config.weight_decay, mask=is_decayed)
        return optax.partition({"muon": _muon(config, schedule), "adamw": adamw}, partition)
    return optax.adamw(schedule, **adam, weight_decay=config.weight_decay, mask=is_decayed)


def _own(reference: str, arguments: dict[str, Any], schedule: optax.Schedule) -> optax.GradientTransformation:
    """A user-defined optimizer.

    Raises:
        ConfigurationError: there is no such function, it fails, or it returns something else.
    """
    field = f"{BLOCK}.optimizer.custom"
    make = load_reference(reference, field)
    try:
        made = make(schedule, **arguments)
    except Exception as error:
        given = ", ".join(["schedule", *arguments])
        raise ConfigurationError(f"{field}: {reference}({given}) failed: {brief(error)}") from error
    if not isinstance(made, optax.GradientTransformation):
        raise ConfigurationError(
            f"{field}: {reference} gives a {type(made).__name__}; it must give an optax.GradientTransformation"
        )
    return made


def _muon(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    return optax.contrib.muon(
        schedule,
        beta=config.beta2,
        weight_decay=config.weight_decay,
        muon_weight_dimension_numbers=lambda weights: jax.tree.map_with_path(_matrix_of, weights),
        consistent_rms=MUON_RMS,
    )


def partition(weights: Any) -> Any:
    """`muon` for each matrix of a layer, `adamw` for all other weights."""
    return jax.tree.map_with_path(lambda path, leaf: "muon" if _matrix_of(path, leaf) else "adamw", weights)


def _matrix_of(path: tuple[Any, ...], leaf: Any) -> Any:
    """The dimensions of a layer's weight that are the rows and columns of its matrix; None: it is not a matrix."""
    names = [part.key for part in path if isinstance(part, jax.tree_util.DictKey)]
    if not names or names[0] not in STACKS or names[-1] not in _REDUCED or not hasattr(leaf, "ndim"):
        return None
    stack = 2 if "experts" in names else 1
    split = stack + _REDUCED[names[-1]]
    return optax.contrib.MuonDimensionNumbers(tuple(range(stack, split)), tuple(range(split, leaf.ndim)))


def adapters_only(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer for adapters (`model.lora`); all other weights stay unchanged and have no state."""
    return optax.partition(
        {"adapter": optimizer, "frozen": optax.set_to_zero()},
        lambda weights: jax.tree.map_with_path(lambda path, _: "adapter" if is_adapter(path) else "frozen", weights),
    )


class AveragedWeights(NamedTuple):
    """State of `average_weights`."""

    average: Any
    """The same structure as the weights."""


def average_weights(decay: float) -> optax.GradientTransformation:
    """Keeps decay · average + (1 - decay) · weights after each step, from the initial weights on; changes no update."""

    def init(weights: Any) -> AveragedWeights:
        return AveragedWeights(jax.tree.map(jnp.copy, weights))

    def update(updates: Any, state: AveragedWeights, weights: Any = None) -> tuple[Any, AveragedWeights]:
        assert weights is not None
        new = optax.apply_updates(weights, updates)
        return updates, AveragedWeights(optax.incremental_update(new, state.average, 1.0 - decay))

    return optax.GradientTransformation(init, update)


def averaged_weights(state: Any) -> Any | None:
    """The average in an optimizer's state; None: there is none."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, AveragedWeights))
    return next((node.average for node in nodes if isinstance(node, AveragedWeights)), None)


def is_decayed(weights: Any) -> Any:
    """A tree with True for each weight that is decayed: all except the scales of norms and the biases."""
    return jax.tree.map_with_path(
        lambda path, _: path[-1].key != "scale" and not path[-1].key.endswith("_bias"), weights
    )
