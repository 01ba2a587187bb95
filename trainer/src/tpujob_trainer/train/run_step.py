"""The train step of a run."""

from __future__ import annotations

import optax

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.train.step import TrainStep, make_train_step
from tpujob_trainer.train.token_loss import RouterFactors


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
