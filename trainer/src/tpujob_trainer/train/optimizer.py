"""AdamW with a linear warm-up and a cosine decay, on the plain tree of weights."""

from __future__ import annotations

from typing import Any

import jax
import optax

from tpujob_trainer.config.schema import OptimizerConfig


def make_schedule(config: OptimizerConfig, *, steps: int) -> optax.Schedule:
    """The learning rate of each step: from 0 to the peak in warmup_steps, then down to the fraction at the last step.

    `config` is resolved: learning_rate and warmup_steps are set.
    """
    assert config.learning_rate is not None
    assert config.warmup_steps is not None
    peak = config.learning_rate
    decay = optax.cosine_decay_schedule(
        peak, max(steps - config.warmup_steps, 1), alpha=config.final_learning_rate_fraction
    )
    if not config.warmup_steps:
        return decay
    # One more than warmup_steps pieces, so that the first step already learns something.
    warmup = optax.linear_schedule(peak / (config.warmup_steps + 1), peak, config.warmup_steps)
    return optax.join_schedules([warmup, decay], [config.warmup_steps])


def make_optimizer(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    """The optimizer; norms (`scale`) are not decayed. Gradients are clipped before, in the step."""
    return optax.adamw(
        schedule,
        b1=config.beta1,
        b2=config.beta2,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        mask=is_decayed,
    )


def is_decayed(weights: Any) -> Any:
    """True for each weight that decays: all but the scales of norms and the biases."""
    return jax.tree.map_with_path(
        lambda path, _: path[-1].key != "scale" and not path[-1].key.endswith("_bias"), weights
    )
