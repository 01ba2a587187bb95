"""The starting point of an attempt: the newest checkpoint that all processes can read, otherwise initial weights."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from tpujob_trainer import data
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.model.weights.companions import read_config
from tpujob_trainer.model.weights.custom_weights import load_custom_weights
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_adapter import read_adapter
from tpujob_trainer.tasks.parts import Parts
from tpujob_trainer.train.loop import BATCHES, checkpoint_tree
from tpujob_trainer.train.optimizer import rate_change
from tpujob_trainer.train.step import TrainState, abstract_state, init_state, state_from

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StartingPoint:
    """The state to train from, and its position in the data."""

    state: TrainState
    position: np.ndarray | None = None
    """In the data, int32 [lanes, columns]; None: the beginning."""

    @property
    def step(self) -> int:
        """Steps done."""
        return int(np.asarray(self.state.step))

    @property
    def batches_taken(self) -> int:
        """Batches used so far, whether trained on or left out."""
        return 0 if self.position is None else int(self.position[0, data.STATE_COLUMNS.index("batches")])


def restore_or_init(parts: Parts, *, below: int | None = None, reason: str = "") -> StartingPoint:
    """The newest checkpoint that all processes can read, else the weights in the model block, else fresh weights.

    Fresh weights are created on the devices that keep them. All processes must call this, and get the same.

    Args:
        parts: Of the run.
        below: Use only checkpoints of earlier steps than this, and set the others aside.
        reason: Why they are set aside.
    """
    checkpoints = parts.checkpointing.checkpoints
    if checkpoints and (restored := _restore(checkpoints, parts, below, reason)) is not None:
        return restored
    report, run, model = parts.session.report, parts.run, parts.model
    if run.weights_from is not None:
        report.enter("restoring")
        weights = load_weights(run.weights_from, model.shape, model.abstract_weights, model.shardings)
        if isinstance(model, LoraModel):
            weights[LORA] = _adapters(run.weights_from, model, run.seed)
        return StartingPoint(state_from(model, parts.optimizer, weights))
    if run.custom_weights_from is not None:
        report.enter("restoring")
        weights = load_custom_weights(run.custom_weights_from, model.abstract_weights, model.shardings)
        return StartingPoint(state_from(model, parts.optimizer, weights))
    report.enter("compiling")
    return StartingPoint(init_state(model, parts.optimizer, run.seed))


def _adapters(weights_from: str, model: LoraModel, seed: int) -> Weights:
    """The adapters of `lora.from`, else new ones."""
    if model.config.from_ is None:
        return model.placed_adapters(seed)
    adapters: Weights = read_adapter(model.config.from_, model, read_config(weights_from))
    return adapters


def _restore(checkpoints: Checkpoints, parts: Parts, below: int | None, reason: str) -> StartingPoint | None:
    report, model = parts.session.report, parts.model
    report.enter("restoring")
    position = jax.ShapeDtypeStruct(
        data.state_shape(parts.dataset.plan), np.int32, sharding=NamedSharding(model.mesh, REPLICATED)
    )
    if below is not None:
        checkpoints.set_aside_from(below, reason)
    abstract = checkpoint_tree(abstract_state(model, parts.optimizer), position)
    stored: dict[int, Mapping[str, Any]] = {}

    def check(step: int, tree: Any, metadata: Mapping[str, Any]) -> str | None:
        stored[step] = metadata
        return _continues(step, tree, metadata)

    restored = checkpoints.restore(abstract, check=check)
    if restored is None:
        return None
    step, tree = restored
    before, run = stored.get(step, {}).get("configuration") or {}, parts.run
    if words := step < run.steps and rate_change(before, run.optimizer, step=step, steps=run.steps):
        logger.warning("%s", words)
    report.update(
        step=step,
        restored_from=step,
        committed_step=checkpoints.committed_step,
        committed_time=checkpoints.committed_time,
    )
    logger.info("Restored the checkpoint of step %d", step)
    state = TrainState(step=tree["step"], weights=tree["weights"], optimizer=tree["optimizer"])
    return StartingPoint(state, np.asarray(tree["data"]))


def _continues(step: int, tree: Any, metadata: Mapping[str, Any]) -> str | None:
    """Why training cannot continue from the state; None: it can.

    Its step must be that of the folder, and its data position that of the batches it was trained on, by their digest.
    """
    if wrong := layout.of_another_step(step, np.asarray(tree["step"])):
        return wrong
    saved, found = metadata.get(BATCHES), data.batches_digest(np.asarray(tree["data"]))
    if saved != found:
        return f"the data position is that of batches {found}, it was saved after batches {saved}"
    logger.info("Step %d goes on from the batches it was saved after: digest=%s", step, found)
    return None
