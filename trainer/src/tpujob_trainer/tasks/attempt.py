"""One attempt's training, from a state to the last step: the loop, and going back where it diverges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
import optax

from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.tasks.checkpointing import Checkpointing
from tpujob_trainer.tasks.dataset import Dataset
from tpujob_trainer.tasks.restore_or_init import restore_or_init
from tpujob_trainer.tasks.rollback_log import Rollbacks
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.train.batches import Assembler, Feed
from tpujob_trainer.train.loop import Ending, Hook, Loop
from tpujob_trainer.train.nonfinite import NonFiniteError, SkipBatches, SkipBudget, batches_to_leave_out, go_back_below
from tpujob_trainer.train.step import TrainState, TrainStep
from tpujob_trainer.train.step_logger import Progress

logger = logging.getLogger(__name__)

COMMIT_LIMIT_SECONDS = 600.0
"""For a save that is under way when the run goes back."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """All that the loop is put together from."""

    runtime: Runtime
    report: Report
    metrics: Metrics
    stop: StopRequest
    config: ResolvedConfig
    model: Model
    optimizer: optax.GradientTransformation
    dataset: Dataset
    checkpointing: Checkpointing
    rollbacks: Rollbacks
    train_step: TrainStep
    weights_are_finite: Callable[[Weights], jax.Array]
    assembler: Assembler
    progress: Progress
    hooks: Sequence[Hook]
    profiler: Profiler

    def run(self, state: TrainState, position: np.ndarray | None) -> Ending:
        """Trains until all steps are done or a process is asked to stop.

        Args:
            state: to begin with.
            position: of the data, which belongs to it; None: the beginning.

        Raises:
            NonFiniteError: the loss is not finite, and the run went back as often as it may.
        """
        while True:
            first, taken = int(np.asarray(state.step)), batches_taken(position)
            try:
                return self._loop(state, position, first=first, taken=taken)
            except NonFiniteError as error:
                # Without the frames: they hold the state, which must make room for the one that is restored.
                found = error.with_traceback(None)
            state, position = self._go_back(found, first=first, taken=taken)

    def _loop(self, state: TrainState, position: np.ndarray | None, *, first: int, taken: int) -> Ending:
        config, dataset = self.config, self.dataset
        with data.BatchLoader(
            dataset.manifest,
            dataset.tokenizer,
            dataset.plan,
            config.sequence_length,
            rows=self.assembler.rows,
            state=position,
        ) as loader:
            batches = SkipBatches(loader, taken=taken, left_out=self.rollbacks.left_out)
            loop = Loop(
                train_step=self.train_step,
                feed=Feed(batches, self.assembler, loader.state),
                weights_are_finite=self.weights_are_finite,
                skips=SkipBudget(config.non_finite),
                saver=self.checkpointing.checkpoints,
                policy=self.checkpointing.policy,
                progress=self.progress,
                hooks=self.hooks,
                profiler=self.profiler,
            )
            self.stop.entered_loop()
            try:
                return loop.run(state, first=first, steps=config.steps)
            finally:
                self.profiler.close()
                self.stop.left_loop()

    def _go_back(self, error: NonFiniteError, *, first: int, taken: int) -> tuple[TrainState, np.ndarray | None]:
        batches = batches_to_leave_out(error.steps, first=first, taken=taken, left_out=self.rollbacks.left_out)
        attempt = self.runtime.attempt_id
        self.rollbacks.remember(error, batches, allowed=self.config.non_finite.rollbacks, attempt=attempt)
        checkpoints = self.checkpointing.checkpoints
        assert checkpoints is not None
        checkpoints.finish(COMMIT_LIMIT_SECONDS)
        state, position = restore_or_init(
            checkpoints,
            self.model,
            self.optimizer,
            self.dataset.plan,
            self.config.seed,
            report=self.report,
            weights_from=self.config.weights_from,
            below=go_back_below(error.steps),
            reason=str(error),
        )
        lost = self.report.snapshot()["lost_steps"]
        self.report.update(lost_steps=lost + error.steps[-1] - int(np.asarray(state.step)))
        self.metrics.rollbacks.inc()
        logger.warning(
            "%s: went back to step %d; batches %s are left out from now on",
            error,
            int(np.asarray(state.step)),
            ", ".join(map(str, batches)),
        )
        return state, position


def batches_taken(position: np.ndarray | None) -> int:
    """How many batches were used by then, whether trained on or left out."""
    return 0 if position is None else int(position[0, data.STATE_COLUMNS.index("batches")])
