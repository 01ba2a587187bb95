"""The training loop.

Its order is guaranteed:

1. Save the current state before a batch is taken, so that the saved data position has exactly the batches of the state.
   Evaluate and sample after that, so that an error there loses nothing.
2. Take the next batch, and start the step on it; the host continues while the devices work.
3. Record the metrics of the step before, which is done by then: the host never waits for the step that it just started.

A state is saved only after the metrics of its step were read, and, if those are not finite, after its weights were
checked to be finite. Actions that depend on a clock or a signal (save now, stop now) travel in the batch and come back
with the metrics, so that all processes do them at the same step.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.train.batches import Feed
from tpujob_trainer.train.nonfinite import SkipBudget
from tpujob_trainer.train.save_policy import SavePolicy, StepFlags, is_due_by_steps
from tpujob_trainer.train.step import StepMetrics, TrainState, TrainStep
from tpujob_trainer.train.step_logger import Progress, StepResult, read
from tpujob_trainer.values.errors import TrainerError

logger = logging.getLogger(__name__)

BATCHES = "batches"
"""Key in the metadata of every checkpoint: the digest of all batches of its state."""


class Hook(Protocol):
    """An action on the state at intervals between two steps, and once more after the last step."""

    every_steps: int | None
    """None: after the last step only."""

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Runs on all processes; `get_flags` is for batches, by which all processes agree to stop."""


Pending = tuple[int, StepMetrics] | None
"""The steps done after a step, and its metrics, which are still on the devices."""


@dataclass(frozen=True)
class ExitResult:
    """The state after the last step of the loop, and whether all steps are done."""

    state: TrainState
    step: int
    has_finished: bool
    """Whether all steps are done, and the last is committed if there is a saver; otherwise a stop was requested."""


@dataclass(frozen=True)
class Savable:
    """A state in the form that the saver takes."""

    step: int
    tree: dict[str, Any]
    metadata: Mapping[str, Any]


class Loop:
    """Trains from a state to the last step, or until asked to stop."""

    def __init__(
        self,
        *,
        train_step: TrainStep,
        feed: Feed,
        weights_are_finite: Callable[[Weights], jax.Array],
        skips: SkipBudget,
        saver: Checkpoints | None,
        policy: SavePolicy,
        progress: Progress,
        hooks: Sequence[Hook] = (),
        profiler: Profiler | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            train_step: The jitted step.
            feed: The batches, at the position of the state that `run` gets.
            weights_are_finite: A jitted function; called only after a step that was not finite.
            skips: Counts the steps that were not finite.
            saver: Saves states; None: there is no checkpoint directory.
            policy: Decides when to save.
            progress: Gets the result of every step.
            hooks: Evaluation, samples and others.
            profiler: Traces steps on request.
        """
        self._train_step = train_step
        self._feed = feed
        self._weights_are_finite = weights_are_finite
        self._skips = skips
        self._saver = saver
        self._policy = policy
        self._progress = progress
        self._hooks = hooks
        self._profiler = profiler or Profiler(None, process_id=0)

    def run(self, state: TrainState, *, first: int, steps: int) -> ExitResult:
        """Trains to `steps` steps in all, of which `first` are done; commits the last state if there is a saver.

        Raises:
            NonFiniteError: the loss or the gradient was not finite too often.
            TrainerError: the last state could not be committed.
        """
        pending: Pending = None
        flags = StepFlags()
        for step in range(first, steps):
            is_save_due = self._policy.is_due(step, first=first, flags=flags)
            is_copy_due = self._policy.is_copy_due(step, first=first)
            hooks = [hook for hook in self._hooks if is_due_by_steps(step, every=hook.every_steps, begun_at=0)]
            flushed = None
            if is_save_due or is_copy_due or hooks:
                flushed, pending = self._record(pending, state), None
                if is_save_due or (flushed and flushed.flags.save):
                    self._save(step, state, wait_seconds=0.0)
                if is_copy_due:
                    self._copy(step, state)
                for hook in hooks:
                    hook.run(step, state, self._policy.stop_flags)
            batch = self._feed.take(self._policy.flags)
            with self._profiler.step(step, state):
                state, metrics = self._train_step(state, batch)
            result, pending = self._record(pending, state), (step + 1, metrics)
            flags = result.flags if result else StepFlags()
            if self._saver:
                self._saver.poll()
            if flags.stop:
                self._record(pending, state)
                is_kept = self._save_to_stop(step + 1, state, flags)
                return ExitResult(state, step + 1, has_finished=is_kept and step + 1 == steps)
            left = min((each.flags.batches_left for each in (flushed, result) if each), default=2)
            if left < 2:  # known from the batch before: this one was the last, or empty already
                logger.info("Step %d: the data ends here, %d steps were asked for", step + 1, steps)
                steps, pending = step + 1, pending if left else None
                break
        self._record(pending, state)
        last = self._save(steps, state, wait_seconds=self._policy.commit_seconds())
        try:
            for hook in self._hooks:
                hook.run(steps, state, self._policy.stop_flags)
        except TrainerError as error:
            # All processes have this error: commit the trained state, whatever happened to the exported files.
            if error.is_shared:
                self._commit_at_the_end(last)
            raise
        return ExitResult(state, steps, has_finished=self._commit_at_the_end(last))

    def _record(self, pending: Pending, state: TrainState) -> StepResult | None:
        """Reads and records the result of a step; `state` is the newest, after that step or the one that follows it."""
        if pending is None:
            return None
        result = read(*pending)
        if not result.is_finite:
            are_finite = bool(np.asarray(self._weights_are_finite(state.weights)))
            self._progress.skipped(result, count=self._skips.skipped(result.step, weights_are_finite=are_finite))
        self._progress.record(result, data_wait_seconds=self._feed.wait_seconds)
        return result

    def _save(self, step: int, state: TrainState, *, wait_seconds: float) -> Savable | None:
        """Starts a save; waits `wait_seconds` for the previous save, and skips this one if that is not done.

        Returns:
            The state that was to be saved; None: there is no saver.
        """
        if self._saver is None:
            return None
        with self._progress.pause("saving"):
            position = self._feed.position()
            savable = Savable(step, checkpoint_tree(state, position.of_lanes), {BATCHES: position.digest})
            is_begun = self._saver.save(step, savable.tree, wait_seconds=wait_seconds, metadata=savable.metadata)
        if is_begun:  # a skipped save is requested again
            self._policy.saved()
        return savable

    def _copy(self, step: int, state: TrainState) -> None:
        """Starts to copy the state to the hosts' disks."""
        if self._saver is None:
            return
        with self._progress.pause("saving"):
            position = self._feed.position()
            self._saver.copy(step, checkpoint_tree(state, position.of_lanes), metadata={BATCHES: position.digest})

    def _save_to_stop(self, step: int, state: TrainState, flags: StepFlags) -> bool:
        """Saves if there is time for it; returns whether nothing is lost."""
        if self._saver is None:
            return True
        if not self._policy.fits(flags):
            logger.warning(
                "Step %d: not saved, %.0f s are left and the last save took %.0f s; the newest checkpoint is step %s",
                step,
                flags.seconds_left,
                flags.save_seconds,
                self._saver.committed_step,
            )
            return False
        return self._commit(self._save(step, state, wait_seconds=self._policy.commit_seconds()))

    def _commit_at_the_end(self, last: Savable | None) -> bool:
        """Commits the last state; True: it is a checkpoint, or there is no saver; False: asked to stop meanwhile."""
        if self._saver is None or last is None or self._commit(last):
            return True
        why = f" ({self._saver.problem})" if self._saver.problem else ""
        message = f"step {last.step} was not saved{why}; the newest checkpoint is step {self._saver.committed_step}"
        if math.isinf(self._policy.seconds_left()):
            raise TrainerError(message)
        logger.warning("Asked to stop: %s", message)
        return False

    def _commit(self, last: Savable | None) -> bool:
        """Waits for the last save, and tries it again while there is time; returns whether nothing is lost."""
        if self._saver is None or last is None:
            return True
        with self._progress.pause("saving"):
            return self._saver.commit(
                last.step,
                last.tree,
                metadata=last.metadata,
                seconds_left=self._policy.seconds_left,
                tick=self._progress.tick,
            )


def checkpoint_tree(state: TrainState, position: Any) -> dict[str, Any]:
    """The tree of a checkpoint: the state, and the data position after its batches."""
    return {"step": state.step, "weights": state.weights, "optimizer": state.optimizer, "data": position}
