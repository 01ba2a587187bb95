"""Checkpoints of a run: one commit point for model, optimizer, step and data state.

Saved asynchronously by all processes.

- All processes call the methods here at the same steps; Orbax writes, and process 0 commits with a marker file.
- Process 0 decides whether a save starts. Training need not wait for the previous save: until that has ended or reached
  its limit, new ones are skipped.
- Barriers go through the coordination service with a limit, never through the devices.
- While saves fail, training continues with the alarm on; when the last commit is too old, the run ends.
"""

import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint import save as checkpoint_save
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.ownership import Claim
from tpujob_trainer.checkpoint.restore import Check, Seconds
from tpujob_trainer.checkpoint.restorer import Restorer
from tpujob_trainer.checkpoint.retention import Deleter, Listener, Settings
from tpujob_trainer.checkpoint.save import PendingSave
from tpujob_trainer.checkpoint.save_decision import Alarm, Answer, Decision, SavePlan, StepSlots, decide
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

PLAN_SECONDS = 60.0
"""Limit for process 0 to decide whether to save, and to delete the remains of a step."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for old checkpoints to be deleted."""
FIRST_RETRY_SECONDS = 2.0
RETRY_SECONDS = 60.0
"""Pause between two tries of the last save, the first and the longest; a stop request shortens it."""
STOPPING_RETRY_SECONDS = 1.0
"""The same while the process is asked to stop."""
TICK_SECONDS = 5.0
FOREVER_SECONDS = 1e9
"""Stands for infinity in JSON."""


class Checkpoints:
    """The checkpoints of one directory. Not thread-safe."""

    def __init__(
        self,
        directory: str,
        settings: Settings,
        runtime: Runtime,
        *,
        claim: Claim | None = None,
        listener: Listener | None = None,
        copies: LocalCopies | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            directory: Claimed before, by `ownership.claim`.
            settings: How checkpoints are kept.
            runtime: Of this process.
            claim: To the directory; None: nothing else writes there.
            listener: Its callbacks are called for each save and restore.
            copies: On the hosts, between two checkpoints; None: there are none.
        """
        self.directory = directory
        self.restore_seconds = Seconds()
        """Duration of the last restore."""
        self._settings = settings
        self._runtime = runtime
        self._claim = claim or Claim(directory)
        self._listener = listener or Listener()
        self._copies = copies
        self._alarm = Alarm(directory, limit_seconds=settings.fail_after_seconds)
        self._fingerprinter = Fingerprinter()
        self._restorer = Restorer(
            directory,
            runtime,
            replica_axis=settings.replica_axis,
            copies=copies,
            fingerprinter=self._fingerprinter,
            name=self._next,
        )
        self._deleter: Deleter | None = None
        self._pending: PendingSave | None = None
        self._slots = StepSlots()
        self._last: Commit | None = None
        self._seconds = 0.0
        self._logged_reason = ""
        self._is_open = False
        self._count = 0

    @property
    def committed_step(self) -> int | None:
        """Step of the newest commit that this process knows of."""
        return self._last.step if self._last else None

    @property
    def committed_time(self) -> float | None:
        """Time of the newest commit that this process knows of, in Unix seconds."""
        return self._last.time if self._last else None

    @property
    def failing_since(self) -> float | None:
        """When saves began to fail, in Unix seconds; None: the last one was committed."""
        return self._alarm.since

    @property
    def problem(self) -> str:
        """Why the last save failed; empty if it was committed."""
        return self._alarm.problem

    @property
    def save_seconds(self) -> float:
        """Duration of the last save until its commit or failure, or of the present one so far if that is longer.

        0: none was measured yet.
        """
        return max(self._seconds, self._pending.elapsed if self._pending else 0.0)

    @property
    def outcome_seconds(self) -> float:
        """Time after which all processes know the result of a save."""
        return self._settings.limit_seconds + checkpoint_save.ANSWER_SECONDS

    def restore(self, abstract_tree: Any, *, check: Check | None = None) -> tuple[int, Any] | None:
        """The step and tree of the newest checkpoint that all processes can read, the same on all; None: there is none.

        Newer copies on the hosts are used instead if they are complete.

        The arrays have the fingerprints that they were saved with, and `check` (called on process 0; for copies, where
        they are read) finds no problem. Unusable checkpoints are set aside, and the listener is called for them.

        Raises:
            ConfigurationError: the checkpoint is of another model or optimizer.
            NotFoundError: storage refuses to be read.
            TrainerError: there are checkpoints, and none can be read, or storage is out of reach.
        """
        self.finish(self.outcome_seconds)
        found = self._restorer.restore(abstract_tree, check)
        self._open()
        if found is None:
            self._require_directory()
            return None
        self.restore_seconds = found.restored.seconds
        self._last = found.newest
        for step, why in found.restored.unusable.items():
            self._slots.set_aside([step])
            self._listener.unusable(step, why)
        return found.restored.step, found.restored.tree

    def _require_directory(self) -> None:
        """Returns if a directory without checkpoints is still the one that this run claimed.

        Raises:
            NotFoundError: it is gone, with all that was in it.
        """
        name = self._next("directory")
        self._runtime.coordination.lead_decides(name, self._claim.require_directory, limit_seconds=PLAN_SECONDS)

    def set_aside_from(self, step: int, reason: str) -> None:
        """Sets the checkpoints of this and later steps aside, on all processes; call `restore` next.

        The same steps may be saved again.
        """
        self.finish(self.outcome_seconds)
        aside = self._restorer.set_aside_from(step, reason)
        if self._last is not None and self._last.step >= step:
            self._last = None
        self._slots.set_aside(aside)

    def record_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records the metrics of a saved state, for `Retention.best_metric`; finite numbers."""
        if self._deleter is not None and self._slots.is_committed(step):
            self._deleter.record_metrics(step, metrics)

    def save(
        self, step: int, tree: Any, *, wait_seconds: float | None = None, metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Starts a save; returns False if the step is already saved, or storage is still busy with an earlier save.

        Returns as soon as the tree is copied to host memory, so that it may be donated.

        Args:
            step: Of the state.
            tree: The state; global arrays.
            wait_seconds: How long to wait for the previous save before this one is skipped; None: until that is over.
            metadata: JSON values kept with this checkpoint, in addition to those of all checkpoints.

        Raises:
            TrainerError: saves have failed for too long.
        """
        begun = time.monotonic()
        self._open()
        self.poll()
        name = self._next("save")
        plan = self._agree(name, step, self.outcome_seconds if wait_seconds is None else wait_seconds)
        if self._pending is not None and plan.decision != Decision.POSTPONE:
            # Process 0 knows the result, so all processes can; this one has not looked yet.
            self.finish(PLAN_SECONDS)
        if plan.decision == Decision.POSTPONE:
            self._pass_over(step, plan.reason)
        if plan.decision != Decision.START:
            return False
        self._alarm.begun()
        try:
            self._pending = checkpoint_save.begin(
                self.directory,
                step,
                tree,
                fingerprints=self._fingerprinter.begin(tree),
                metadata={**self._settings.metadata, **(metadata or {})},
                name=f"{self._runtime.attempt_id}/{name}",
                limit_seconds=self._settings.limit_seconds,
                runtime=self._runtime,
                confirm_claim=self._claim.confirm,
            )
        except (OSError, ValueError) as error:
            raise unusable(self.directory, error) from error
        self._slots.begun(self._pending)
        self._listener.saved(step, time.monotonic() - begun)
        return True

    def copy(self, step: int, tree: Any, *, metadata: Mapping[str, Any] | None = None) -> None:
        """Starts to copy the state to the disks of the hosts; returns when it is in host memory. All processes call it.

        Args:
            step: Of the state.
            tree: The state; global arrays, which may be donated afterwards.
            metadata: JSON values kept with it.
        """
        if self._copies is None:
            return
        self._copies.save(
            step,
            tree,
            # On all processes, whether or not their disks are busy: a collective computation.
            fingerprints=self._fingerprinter.begin(tree),
            name=f"{self._runtime.attempt_id}/{self._next('copy')}",
            committed=self.committed_step,
            metadata=metadata or {},
        )

    def poll(self) -> None:
        """Handles a commit or a failure, without waiting. Call it once per step.

        Raises:
            TrainerError: saves have failed for too long, or another run has taken the directory over.
        """
        self._claim.verify()
        if self._pending is not None and self._pending.is_over and not self._settle(self._pending):
            self._alarm.check(self.committed_step)

    def finish(self, limit_seconds: float) -> bool:
        """Waits for the save that is under way; returns whether it was committed, or none was under way.

        Raises:
            TrainerError: saves have failed for too long, or another run has taken the directory over.
        """
        if self._pending is None:
            return True
        if not self._pending.wait(limit_seconds):
            return False
        self._claim.verify()
        is_committed = self._settle(self._pending)
        if not is_committed:
            self._alarm.check(self.committed_step)
        return is_committed

    def commit(
        self,
        step: int,
        tree: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        seconds_left: Callable[[], float] = lambda: math.inf,
        tick: Callable[[], None] = lambda: None,
    ) -> bool:
        """Waits until the step of the last `save` is a checkpoint, and saves it again if that failed.

        It retries until the step is committed, `fail_after_seconds` have passed since the last commit, or too little
        time is left. All processes call it.

        Args:
            step: Of the state.
            tree: The state; None: it no longer exists, and nothing is retried.
            metadata: As passed to `save`.
            seconds_left: Returns the time until this process is killed.
            tick: Called repeatedly while this waits.

        Returns:
            Whether the step is a checkpoint; False when too little time is left.

        Raises:
            TrainerError: saves have failed for too long, or another run has taken the directory over.
        """
        pause = FIRST_RETRY_SECONDS
        for tries in itertools.count():
            self._wait(seconds_left, tick)
            if self._pending is not None:
                return False  # the time is over
            if self._is_kept(step):
                return True
            if tree is None or not self._may_retry(step, seconds_left(), is_repeated=tries > 0):
                return False
            _pause(pause, seconds_left, tick)
            pause = min(2 * pause, RETRY_SECONDS)
            self.save(step, tree, metadata=metadata)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Ends the background work of a run that is complete; call `finish` before. Removes the copies on the hosts.

        Waits for old checkpoints to be deleted, up to 30 s.
        """
        if self._copies is not None:
            self._copies.remove()
        if self._deleter is not None and not self._deleter.wait(CLOSE_SECONDS):
            logger.warning("Old checkpoints in %s are not deleted yet; the next run does it", self.directory)

    def _wait(self, seconds_left: Callable[[], float], tick: Callable[[], None]) -> None:
        """Waits until the save that is under way has an outcome, or no time is left."""
        while self._pending is not None and seconds_left() > 0:
            if self._pending.wait(min(TICK_SECONDS, seconds_left())):
                self._claim.verify()
                self._settle(self._pending)
            tick()

    def _is_kept(self, step: int) -> bool:
        """Whether the step is a checkpoint in storage; the same on all processes."""

        def look() -> bool:
            try:
                is_there = layout.is_committed(self.directory, step)
            except Exception as error:  # noqa: BLE001 - libraries have classes of their own for what a bucket answers
                logger.debug("Cannot look at step %d: %s", step, errors.brief(error))
                return self._slots.is_committed(step)
            if not is_there and self._slots.is_committed(step):
                logger.warning("The checkpoint of step %d is gone from %s", step, self.directory)
                self._slots.gone(step)
            return is_there

        kept: bool = self._runtime.coordination.lead_decides(self._next("kept"), look, limit_seconds=PLAN_SECONDS)
        return kept

    def _may_retry(self, step: int, seconds_left: float, *, is_repeated: bool) -> bool:
        """Whether there is time for another try of the last save, on all processes."""

        def decide_retry(seconds_left_of: Mapping[int, float]) -> bool:
            least = min(seconds_left_of.values())
            is_stopping = least < FOREVER_SECONDS
            if is_stopping and least < self.save_seconds + STOPPING_RETRY_SECONDS:
                return False
            if not is_stopping:  # the grace period is the limit otherwise
                self._alarm.check(self.committed_step, is_repeated=is_repeated)
            why = self.problem or self._logged_reason
            logger.warning("Step %d, the last one, is not committed (%s); it is saved again", step, why)
            return True

        may: bool = self._runtime.coordination.lead_decides_on(
            self._next("retry"), min(seconds_left, FOREVER_SECONDS), decide_retry, limit_seconds=PLAN_SECONDS
        )
        return may

    def _next(self, what: str) -> str:
        self._count += 1
        return f"{what}/{self._count}"

    def _open(self) -> None:
        """Lists the directory, and deletes the remains of interrupted saves. No other run writes here."""
        if self._is_open:
            return
        self._is_open = True
        if not self._runtime.is_lead:
            return
        try:
            interrupted = self._slots.look(self.directory)
        except Exception as error:
            raise unusable(self.directory, error) from error
        self._deleter = Deleter(self.directory, self._settings.retention, self._claim.confirm)
        for step in interrupted:
            self._deleter.discard(step)

    def _pass_over(self, step: int, reason: str) -> None:
        # One warning for each reason, however many steps it delays.
        is_news = self._runtime.is_lead and reason != self._logged_reason
        self._logged_reason = reason
        logger.log(logging.WARNING if is_news else logging.DEBUG, "Step %d is not saved: %s", step, reason)
        self._listener.passed_over(step, reason)

    def _agree(self, name: str, step: int, wait_seconds: float) -> SavePlan:
        """What process 0 decides about a save; the same on all processes."""
        talk = self._runtime.coordination
        limit = wait_seconds + PLAN_SECONDS
        decided = talk.lead_decides(
            f"{name}/plan", lambda: self._plan(step, wait_seconds).to_json(), limit_seconds=limit
        )
        plan = SavePlan.from_json(decided)
        if plan.decision == Decision.ASK_ALL:
            decided = talk.lead_decides_on(
                f"{name}/stuck",
                self._slots.answer(step),
                lambda answers: self._make_place(step, list(answers.values())).to_json(),
                limit_seconds=limit,
            )
            plan = SavePlan.from_json(decided)
        return plan

    def _plan(self, step: int, wait_seconds: float) -> SavePlan:
        if self._pending is not None and wait_seconds:
            self.finish(wait_seconds)
        return decide(
            under_way=self._pending.step if self._pending is not None else None,
            is_committed=self._slots.is_committed(step),
            is_failing=self._alarm.since is not None,
            is_taken=self._slots.is_taken(step),
        )

    def _make_place(self, step: int, answers: Sequence[Answer]) -> SavePlan:
        assert self._deleter is not None
        if why := self._slots.make(step, answers, self._deleter, limit_seconds=PLAN_SECONDS / 2):
            # Checked here, because no save starts whose failure would be checked.
            self._alarm.check(self.committed_step)
            return SavePlan(Decision.POSTPONE, why)
        return SavePlan(Decision.START)

    def _settle(self, pending: PendingSave) -> bool:
        self._pending = None
        self._seconds = pending.elapsed
        outcome = pending.outcome
        assert outcome is not None
        if outcome.commit is not None:
            self._last = outcome.commit
            self._slots.committed(pending.step)
            self._alarm.committed()
            self._listener.committed(outcome.commit, pending.elapsed)
            if self._deleter is not None:
                self._deleter.tidy()
            return True
        self._slots.given_up(pending)
        self._alarm.failed(outcome, elapsed_seconds=pending.elapsed)
        self._listener.failed(pending.step, outcome.problem)
        logger.error("The checkpoint of step %d failed: %s", pending.step, outcome.problem)
        if outcome.is_broken and self._deleter is not None:
            # Its remains would take up the space for the next save.
            self._deleter.discard(pending.step)
        return False


def _pause(seconds: float, seconds_left: Callable[[], float], tick: Callable[[], None]) -> None:
    """Waits; only briefly in a process that is stopping."""
    began, left = time.monotonic(), seconds
    while left > 0:
        time.sleep(min(left, 0.5))
        tick()
        is_stopping = not math.isinf(seconds_left())
        left = began + (min(seconds, STOPPING_RETRY_SECONDS) if is_stopping else seconds) - time.monotonic()
