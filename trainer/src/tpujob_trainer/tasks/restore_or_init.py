"""What an attempt trains from: the newest checkpoint that all processes can read, else fresh weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding

from tpujob_trainer import data
from tpujob_trainer.checkpoint.manager import Checkpoints
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.train.loop import BATCHES, checkpoint_tree
from tpujob_trainer.train.step import TrainState, abstract_state, init_state, state_from

logger = logging.getLogger(__name__)


def restore_or_init(
    checkpoints: Checkpoints | None,
    model: Model,
    optimizer: optax.GradientTransformation,
    plan: data.LanePlan,
    seed: int,
    *,
    report: Report,
    weights_from: str | None = None,
    below: int | None = None,
    reason: str = "",
) -> tuple[TrainState, np.ndarray | None]:
    """The state to train from, and the data position that belongs to it (None: the beginning).

    The newest checkpoint that all processes can read; where there is none at all, the weights of a Hugging Face model
    (`weights_from`) or fresh ones, made on the devices that keep them. With `below` only steps before that one; later
    ones are set aside for the `reason`.
    """
    if checkpoints:
        report.enter("restoring")
        position = jax.ShapeDtypeStruct(
            data.state_shape(plan), np.int32, sharding=NamedSharding(model.mesh, REPLICATED)
        )
        if below is not None:
            checkpoints.set_aside_from(below, reason)
        restored = checkpoints.restore(checkpoint_tree(abstract_state(model, optimizer), position), check=_same_batches)
        if restored is not None:
            step, tree = restored
            report.update(
                step=step,
                restored_from=step,
                committed_step=checkpoints.committed_step,
                committed_time=checkpoints.committed_time,
            )
            logger.info("Restored the checkpoint of step %d", step)
            state = TrainState(step=tree["step"], weights=tree["weights"], optimizer=tree["optimizer"])
            return state, np.asarray(tree["data"])
    if weights_from is not None:
        report.enter("restoring")
        weights = load_weights(weights_from, model.shape, model.abstract_weights, model.shardings)
        if isinstance(model, LoraModel):
            weights[LORA] = model.placed_adapters(seed)
        return state_from(model, optimizer, weights), None
    report.enter("compiling")
    return init_state(model, optimizer, seed), None


def _same_batches(step: int, tree: Any, said: Mapping[str, Any]) -> str | None:
    """Whether the data position goes on from the very batches that were trained on, by their hash chain."""
    saved, found = said.get(BATCHES), data.batches_digest(np.asarray(tree["data"]))
    if saved != found:
        return f"the data position is that of batches {found}, it was saved after batches {saved}"
    logger.info("Step %d goes on from the batches it was saved after: digest=%s", step, found)
    return None
