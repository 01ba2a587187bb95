"""The training loop.

Its order is a promise:

1. Save with the present state, before a batch is taken: what is saved has consumed exactly the batches it says.
   Evaluate and sample after that: what goes wrong there loses nothing.
2. Take the next batch, and start the step on it; the host goes on while the devices work.
3. Read the metrics of the step before, which is over by then: the host never waits for the step it has just started.

A state is saved only after its own step's metrics were read, and where those are not finite, after the weights were
found to be. What depends on a clock or a signal
(save now, stop now) travels in the batch and comes back with the metrics, so that all processes do it at the same step.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from tpujob_trainer.config.schema import CheckpointConfig
from tpujob_trainer.errors import TrainerError
from tpujob_trainer.exit.stop_request import StopRequest
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.train.batches import Feed
from tpujob_trainer.train.nonfinite import SkipBudget
from tpujob_trainer.train.save_schedule import SaveClock, fits, is_due_by_steps
from tpujob_trainer.train.step import StepMetrics, TrainState, TrainStep
from tpujob_trainer.train.step_flags import Signals
from tpujob_trainer.train.step_logger import Finding, Progress, read

logger = logging.getLogger(__name__)

COMMIT_LIMIT_SECONDS = 600.0

BATCHES = "batches"
"""Said with every checkpoint: the digest of all batches that made it."""


class Saver(Protocol):
    """Where states go; `checkpoint.Checkpoints` is one."""

    @property
    def committed_step(self) -> int | None: ...
    def save(self, step: int, tree: Any, *, wait_seconds: float | None, metadata: Mapping[str, Any]) -> bool: ...
    def poll(self) -> None: ...
    def finish(self, limit_seconds: float) -> bool: ...


class Interlude(Protocol):
    """What is done with the state now and then between two steps, and once more after the last one."""

    every_steps: int | None
    """None: after the last step only."""

    def run(self, step: int, state: TrainState, say: Callable[[], Signals]) -> None:
        """Done by all processes alike; `say` is for batches on which to agree to stop."""


Unread = tuple[int, StepMetrics] | None
"""Metrics that are still on the devices, and the steps done with them."""


@dataclass(frozen=True)
class Ending:
    """How the loop ended."""

    state: TrainState
    step: int
    has_finished: bool
    """All steps are done, and the last one is committed if there is a saver; else the run was asked to stop before."""


class Loop:
    """Trains from a state to the last step, or until asked to stop."""

    def __init__(
        self,
        *,
        train_step: TrainStep,
        feed: Feed,
        weights_are_finite: Callable[[Weights], jax.Array],
        skips: SkipBudget,
        saver: Saver | None,
        config: CheckpointConfig,
        clock: SaveClock,
        progress: Progress,
        stop: StopRequest,
        interludes: Sequence[Interlude] = (),
        save_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Put together; nothing runs yet.

        Args:
            train_step: the jitted step.
            feed: the batches, at the position of the state that `run` is given.
            weights_are_finite: jitted; asked only after a step that was not finite.
            skips: counts these.
            saver: where states go; None where there is no checkpoint directory.
            config: when to save.
            clock: process 0's.
            progress: is told of every step.
            stop: whether this process is asked to stop.
            interludes: evaluation, samples.
            save_seconds: what the last save took until its commit; 0 while none is measured.
        """
        self._train_step = train_step
        self._feed = feed
        self._weights_are_finite = weights_are_finite
        self._skips = skips
        self._saver = saver
        self._config = config
        self._clock = clock
        self._progress = progress
        self._stop = stop
        self._interludes = interludes
        self._save_seconds = save_seconds

    def run(self, state: TrainState, *, first: int, steps: int) -> Ending:
        """The state after `steps` steps in all, `first` of which are done; committed if there is a saver.

        Raises:
            NonFiniteError: the loss or the gradient was not finite too often.
            TrainerError: the last state could not be committed.
        """
        unread: Unread = None
        said = Signals()
        for step in range(first, steps):
            saves = said.save or is_due_by_steps(step, every=self._config.every_steps, begun_at=first)
            interludes = [i for i in self._interludes if is_due_by_steps(step, every=i.every_steps, begun_at=0)]
            told = None
            if saves or interludes:
                told, unread = self._record(unread, state), None
                if saves or (told and told.signals.save):
                    self._save(step, state, wait_seconds=0.0)
                for interlude in interludes:
                    interlude.run(step, state, self._stop_signals)
            batch = self._feed.take(self._signals)
            state, metrics = self._train_step(state, batch)
            finding, unread = self._record(unread, state), (step + 1, metrics)
            said = finding.signals if finding else Signals()
            if self._saver:
                self._saver.poll()
            if said.stop:
                self._record(unread, state)
                is_kept = self._save_to_stop(step + 1, state, said)
                return Ending(state, step + 1, has_finished=is_kept and step + 1 == steps)
            left = min((each.signals.batches_left for each in (told, finding) if each), default=2)
            if left < 2:  # told with the batch before: this one was the last, or empty already
                logger.info("Step %d: the data ends here, %d steps were asked for", step + 1, steps)
                steps, unread = step + 1, unread if left else None
                break
        self._record(unread, state)
        self._save(steps, state, wait_seconds=self._commit_seconds())
        for interlude in self._interludes:
            interlude.run(steps, state, self._stop_signals)
        self._wait_to_finish(steps)
        return Ending(state, steps, has_finished=True)

    def _signals(self) -> Signals:
        return dataclasses.replace(self._stop_signals(), save=self._clock.asks(), save_seconds=self._save_seconds())

    def _stop_signals(self) -> Signals:
        return Signals(stop=self._stop.requested, seconds_left=self._stop.seconds_left())

    def _record(self, unread: Unread, state: TrainState) -> Finding | None:
        """Tells what a step found; `state` is the newest, after that step or the one that follows it."""
        if unread is None:
            return None
        finding = read(*unread)
        if not finding.is_finite:
            are_finite = bool(np.asarray(self._weights_are_finite(state.weights)))
            self._progress.skipped(finding, count=self._skips.skipped(finding.step, weights_are_finite=are_finite))
        self._progress.record(finding, data_wait_seconds=self._feed.wait_seconds)
        return finding

    def _save(self, step: int, state: TrainState, *, wait_seconds: float) -> None:
        """Begins to save; waits so long for the save before, and passes this one over if that still goes on."""
        if self._saver is None:
            return
        with self._progress.pause("saving"):
            position = self._feed.position()
            self._saver.save(
                step,
                checkpoint_tree(state, position.of_lanes),
                wait_seconds=wait_seconds,
                metadata={BATCHES: position.digest},
            )
        self._clock.saved()

    def _save_to_stop(self, step: int, state: TrainState, said: Signals) -> bool:
        """Saves if that still fits; whether nothing is lost."""
        if self._saver is None:
            return True
        if not fits(seconds_left=said.seconds_left, save_seconds=said.save_seconds):
            logger.warning(
                "Step %d: not saved, %.0f s are left and the last save took %.0f s; the newest checkpoint is step %s",
                step,
                said.seconds_left,
                said.save_seconds,
                self._saver.committed_step,
            )
            return False
        self._save(step, state, wait_seconds=self._commit_seconds())
        return self._wait_for_commit(step)

    def _wait_to_finish(self, step: int) -> None:
        if self._saver is not None and not self._wait_for_commit(step):
            raise TrainerError(
                f"step {step} was saved but not committed; the newest checkpoint is step {self._saver.committed_step}"
            )

    def _commit_seconds(self) -> float:
        return min(self._stop.seconds_left(), COMMIT_LIMIT_SECONDS)

    def _wait_for_commit(self, step: int) -> bool:
        assert self._saver is not None
        with self._progress.pause("saving"):
            self._saver.finish(self._commit_seconds())
        return self._saver.committed_step == step


def checkpoint_tree(state: TrainState, position: Any) -> dict[str, Any]:
    """What a checkpoint holds: the state, and the data position after the batches that made it."""
    return {"step": state.step, "weights": state.weights, "optimizer": state.optimizer, "data": position}
