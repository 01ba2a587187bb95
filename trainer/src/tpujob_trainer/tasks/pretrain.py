"""Pretraining: assembles the parts, restores or initializes the state, compiles and trains."""

import logging

import jax

from tpujob_contract import DistributedProcess, ExitCode, LocalProcess
from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.session.session import Session
from tpujob_trainer.tasks.exporting import Exporter
from tpujob_trainer.tasks.parts import Parts, assemble
from tpujob_trainer.tasks.restore_or_init import StartingPoint, restore_or_init
from tpujob_trainer.tasks.training import build_training
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.values import device_memory

logger = logging.getLogger(__name__)

TRACKERS_SECONDS = 10.0
"""Time for the trackers to send what is left at the end. Less than the other processes wait."""


def run(
    process: DistributedProcess | LocalProcess, config: TrainerConfig, stop: StopRequest, *, in_pod: bool = False
) -> int:
    """Trains as configured; returns the exit code of this process.

    Raises:
        TrainerError: a subclass, by cause.
    """
    process_id = process.process_id if isinstance(process, DistributedProcess) else 0
    profiler = Profiler(process.checkpoint_dir, process_id=process_id)
    session = Session.start(process, config, stop, in_pod=in_pod, profiler=profiler)
    try:
        code = _pretrain(session, config)
    except jax.errors.JaxRuntimeError as error:
        if device_memory.is_exhausted(error):
            has_fitted = session.report.step > 0 or session.report.phase == "restoring"
            raise device_memory.ending(error, has_fitted=has_fitted) from error
        raise
    session.end()
    return code


def _pretrain(session: Session, config: TrainerConfig) -> int:
    parts = assemble(session, config)
    start = restore_or_init(parts)
    session.goodput.restored(start.step)
    if message := _already_complete(parts, start):
        logger.info("%s", message)
        session.report.update(step=start.step, message=message)
        return ExitCode.FINISHED
    training = build_training(parts, first_step=start.step)
    ending = training.run(start)
    training.trackers.close(TRACKERS_SECONDS)
    run = parts.run
    if not ending.has_finished:
        logger.info("Step %d of %d: stopped as asked", ending.step, run.steps)
        return ExitCode.STOPPED
    if parts.checkpointing.checkpoints:
        parts.checkpointing.checkpoints.close()
    logger.info("Finished: %d steps, %d tokens", ending.step, ending.step * run.tokens_per_step)
    return ExitCode.FINISHED


def _already_complete(parts: Parts, start: StartingPoint) -> str | None:
    """Why nothing is left to train, and what to change to train on; None: something is left."""
    run = parts.run
    if start.step >= run.steps:
        if run.export:
            # The attempt before may have ended between the last commit and the export.
            Exporter(run, run.export, parts.model, parts.session).write_if_missing(start.step, start.state)
        has, to_train_on = f"{start.step} of {run.steps} steps", "raise spec.trainer.steps or tokens"
    elif start.position is not None and data.has_ended(start.position, parts.dataset.plan):
        has, to_train_on = f"all {run.data.epochs} epochs of its data", "begin another run"
    else:
        return None
    return f"complete: the checkpoint has {has}, nothing is left to do; to train on, {to_train_on}"
