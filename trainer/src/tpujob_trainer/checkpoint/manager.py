"""Checkpoints of a run: one commit point for model, optimizer, step and data state.

Saved asynchronously by all processes.

- Every process calls everything here at the same steps; Orbax writes, and process 0 commits by a marker file.
- Whether a save is begun is decided by process 0; training never waits for the save before, which is passed over or
  given up instead.
- Barriers go through the coordination service with a limit, never through the devices.
- While saves fail, training goes on and the alarm is raised; when the last commit is too old, the run ends.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpujob_trainer.checkpoint import layout, local_restore, ownership
from tpujob_trainer.checkpoint import restore as checkpoint_restore
from tpujob_trainer.checkpoint import save as checkpoint_save
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.one_slice import OneSlice, one_slice
from tpujob_trainer.checkpoint.retention import Deleter, Retention
from tpujob_trainer.checkpoint.save import PendingSave
from tpujob_trainer.checkpoint.save_health import Alarm
from tpujob_trainer.checkpoint.step_slots import Answer, StepSlots
from tpujob_trainer.distributed.initialize import Runtime

logger = logging.getLogger(__name__)

PLAN_SECONDS = 60.0
"""Limit for process 0 to say whether to save, and for deleting what lies in the place of a step."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for old checkpoints to be deleted."""

GO, ASK, LATER, PRESENT = "go", "ask", "later", "present"


@dataclasses.dataclass
class Listener:
    """Who is told about saves. Called in the thread that calls `save` and `poll`."""

    saved: Callable[[int, float], None] = lambda step, blocking_seconds: None
    committed: Callable[[Commit, float], None] = lambda commit, seconds: None
    failed: Callable[[int, str], None] = lambda step, why: None
    passed_over: Callable[[int, str], None] = lambda step, why: None
    unusable: Callable[[int, str], None] = lambda step, why: None


class Checkpoints:
    """The checkpoints of one directory. Not for several threads."""

    def __init__(
        self,
        directory: str,
        *,
        retention: Retention,
        runtime: Runtime,
        limit_seconds: float = 600.0,
        fail_after_seconds: float = 3600.0,
        metadata: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
        verify_claim: Callable[[], None] = lambda: None,
        confirm_claim: Callable[[], None] = lambda: None,
        replica_axis: str | None = None,
        copies: LocalCopies | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            directory: Claimed before, by `ownership.claim`.
            retention: Which checkpoints stay.
            runtime: This process among the others.
            limit_seconds: A save that is not committed by then has failed.
            fail_after_seconds: While saves fail: the age of the last commit at which the run ends.
            metadata: JSON values kept with every checkpoint (configuration, versions).
            listener: Who is told.
            verify_claim: Raises a TrainerError when another run has taken the directory over. Asked at every step.
            confirm_claim: The same after a look at the storage. Asked on process 0 in the background, before anything
                of a save is written, before its commit and before anything is deleted: where a run goes on after all
                that was given up, what the next one restores is left alone.
            replica_axis: The axis of the mesh whose parts hold the same arrays: one of them reads for all. None: every
                process reads.
            copies: On the hosts, between two checkpoints; None: there are none.
        """
        self.directory = directory
        self.restore_seconds = checkpoint_restore.Seconds()
        """What the last restore took."""
        self._retention = retention
        self._runtime = runtime
        self._limit_seconds = limit_seconds
        self._alarm = Alarm(directory, limit_seconds=fail_after_seconds)
        self._metadata = dict(metadata or {})
        self._listener = listener or Listener()
        self._verify_claim = verify_claim
        self._confirm_claim = confirm_claim
        self._replica_axis = replica_axis
        self._copies = copies
        self._fingerprinter = Fingerprinter()
        self._deleter: Deleter | None = None
        self._pending: PendingSave | None = None
        self._slots = StepSlots()
        self._last: Commit | None = None
        self._seconds = 0.0
        self._told = ""
        self._is_open = False
        self._count = 0

    @property
    def committed_step(self) -> int | None:
        """Step of the newest commit that this process knows of."""
        return self._last.step if self._last else None

    @property
    def committed_time(self) -> float | None:
        """When that was, in Unix seconds."""
        return self._last.time if self._last else None

    @property
    def failing_since(self) -> float | None:
        """Since when saves fail, in Unix seconds; None while the last one was committed."""
        return self._alarm.since

    @property
    def problem(self) -> str:
        """Why the last save came to nothing; empty while it was committed."""
        return self._alarm.problem

    @property
    def save_seconds(self) -> float:
        """What the last save took until its commit or its failure, or the present one has taken if that is longer.

        0 while none is measured.
        """
        return max(self._seconds, self._pending.elapsed if self._pending else 0.0)

    @property
    def is_saving(self) -> bool:
        """Whether a save waits for its commit. Processes may differ for a moment: never decide by it alone."""
        return self._pending is not None

    def restore(self, abstract_tree: Any, *, check: checkpoint_restore.Check | None = None) -> tuple[int, Any] | None:
        """Step and tree of the newest checkpoint that all processes can read, or None; the same step on all.

        Copies on the hosts that are newer, and whole, are taken before it.

        Its fingerprints are those it was saved with, and `check` has nothing against it (asked on process 0). What
        cannot be used is set aside, and the listener told.

        Raises:
            ConfigurationError: the checkpoint is of another model or optimizer.
            NotFoundError: storage refuses to be read.
            TrainerError: there are checkpoints, and none can be read, or storage is out of reach.
        """
        self.finish(self._limit_seconds + checkpoint_save.ANSWER_SECONDS)
        # Now, and not when the devices of all processes are to exchange something.
        self._fingerprinter.compile(abstract_tree)
        by_one = one_slice(abstract_tree, self._replica_axis, process_id=self._runtime.process_id)
        if by_one is not None:
            by_one.compile()
        self._runtime.coordination.barrier(self._next("compiled"), limit_seconds=checkpoint_restore.VOTE_SECONDS)
        if (copied := self._restore_copies(abstract_tree, by_one, check)) is not None:
            return copied
        restored = checkpoint_restore.restore(
            self.directory,
            abstract_tree,
            self._runtime,
            name=self._next("restore"),
            fingerprinter=self._fingerprinter,
            check=check,
            one_slice=by_one,
        )
        self._open()
        if self._copies is not None:
            self._copies.discard()
        if restored is None:
            return None
        self.restore_seconds = restored.seconds
        self._last = Commit(restored.step, layout.committed_at(self.directory, restored.step))
        for step, why in restored.unusable.items():
            self._slots.set_aside([step])
            self._listener.unusable(step, why)
        return restored.step, restored.tree

    def _restore_copies(
        self, abstract_tree: Any, by_one: OneSlice | None, check: checkpoint_restore.Check | None
    ) -> tuple[int, Any] | None:
        if self._copies is None:
            return None
        restored = local_restore.restore(
            self._copies,
            abstract_tree,
            self._runtime,
            name=self._next("copies"),
            fingerprinter=self._fingerprinter,
            newest=self._newest,
            one_slice=by_one,
            check=check,
        )
        if restored is None:
            return None
        self._copies.discard(but=restored.step)
        self.restore_seconds = restored.seconds
        self._last = Commit(
            *self._runtime.coordination.lead_decides(
                self._next("newest"), self._newest_commit, limit_seconds=checkpoint_restore.VOTE_SECONDS
            )
        )
        self._open()
        return restored.step, restored.tree

    def _newest(self) -> int | None:
        try:
            return next(iter(layout.committed(self.directory)), None)
        except Exception as error:
            raise ownership.unusable(self.directory, error) from error

    def _newest_commit(self) -> tuple[int, float]:
        step = self._newest()
        assert step is not None, "copies go on from a checkpoint"
        return step, layout.committed_at(self.directory, step)

    def set_aside_from(self, step: int, reason: str) -> None:
        """Makes the checkpoints of this and later steps none any more, for all processes alike; `restore` comes next.

        Their numbers may be saved again.
        """
        self.finish(self._limit_seconds + checkpoint_save.ANSWER_SECONDS)
        if self._copies is not None:
            # Before the checkpoints: an attempt that ends in between must not go on from what is to be left behind.
            self._copies.discard()
            self._runtime.coordination.barrier(self._next("discarded"), limit_seconds=checkpoint_restore.VOTE_SECONDS)

        def decide() -> list[int]:
            found = [at for at in layout.committed(self.directory) if at >= step]
            for at in found:
                logger.warning("Set aside as %s: %s", layout.set_aside(self.directory, at, reason), reason)
            return found

        aside = self._runtime.coordination.lead_decides(
            self._next("aside"), decide, limit_seconds=checkpoint_restore.VOTE_SECONDS
        )
        if self._last is not None and self._last.step >= step:
            self._last = None
        self._slots.set_aside(aside)

    def stored_metadata(self) -> dict[str, Any] | None:
        """What was given as `metadata` with the newest checkpoint, the same on all processes; None: there is none."""
        found: dict[str, Any] | None = self._runtime.coordination.lead_decides(
            self._next("metadata"),
            lambda: layout.metadata_of_newest(self.directory),
            limit_seconds=checkpoint_restore.VOTE_SECONDS,
        )
        return found

    def record_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tells what was measured of a state that was saved, for `Retention.best_metric`; finite numbers."""
        if self._deleter is not None and self._slots.is_committed(step):
            self._deleter.record_metrics(step, metrics)

    def save(
        self, step: int, tree: Any, *, wait_seconds: float | None = None, metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Begins to save; False when the step is saved already, or when storage is still busy with the save before.

        Returns as soon as the tree is copied to host memory, so that it may be donated.

        Args:
            step: Of the state.
            tree: The state; global arrays.
            wait_seconds: How long to wait for the save before, rather than pass this one over; None: until it is over.
            metadata: JSON values kept with this checkpoint beside those of all.

        Raises:
            TrainerError: saves have failed for too long.
        """
        begun = time.monotonic()
        self._open()
        self.poll()
        name = self._next("save")
        wait = self._limit_seconds + checkpoint_save.ANSWER_SECONDS if wait_seconds is None else wait_seconds
        plan, why = self._agree(name, step, wait)
        if self._pending is not None and plan != LATER:
            # Process 0 knows what became of it, so it was said; this process has not looked yet.
            self.finish(PLAN_SECONDS)
        if plan == LATER:
            # One line for each reason, however many steps it holds up.
            is_news = self._runtime.is_lead and why != self._told
            self._told = why
            logger.log(logging.WARNING if is_news else logging.DEBUG, "Step %d is not saved: %s", step, why)
            self._listener.passed_over(step, why)
        if plan != GO:
            return False
        self._alarm.begun()
        try:
            self._pending = checkpoint_save.begin(
                self.directory,
                step,
                tree,
                fingerprints=self._fingerprinter.begin(tree),
                metadata={**self._metadata, **(metadata or {})},
                name=f"{self._runtime.attempt_id}/{name}",
                limit_seconds=self._limit_seconds,
                runtime=self._runtime,
                confirm_claim=self._confirm_claim,
            )
        except (OSError, ValueError) as error:
            raise ownership.unusable(self.directory, error) from error
        self._slots.begun(self._pending)
        self._listener.saved(step, time.monotonic() - begun)
        return True

    def copy(self, step: int, tree: Any, *, metadata: Mapping[str, Any] | None = None) -> None:
        """Begins to copy the state to the disks of the hosts; returns when it is in host memory. All processes call it.

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
            # On all processes, whether or not their disks are busy: a computation of all devices.
            fingerprints=self._fingerprinter.begin(tree),
            name=f"{self._runtime.attempt_id}/{self._next('copy')}",
            committed=self.committed_step,
            metadata=metadata or {},
        )

    def poll(self) -> None:
        """Notices a commit or a failure, without waiting. Call it once a step.

        Raises:
            TrainerError: saves have failed for too long, or another run has taken the directory over.
        """
        self._verify_claim()
        if self._pending is not None and self._pending.is_over:
            self._settle(self._pending)

    def finish(self, limit_seconds: float) -> bool:
        """Waits for the save that is under way; whether none is left and the last one was committed.

        Raises:
            TrainerError: saves have failed for too long, or another run has taken the directory over.
        """
        if self._pending is None:
            return True
        if not self._pending.wait(limit_seconds):
            return False
        self._verify_claim()
        return self._settle(self._pending)

    def close(self) -> None:
        """Ends the background work of a run that is complete; call `finish` before. Removes the copies on the hosts.

        Waits for old checkpoints to be deleted, up to 30 s.
        """
        if self._copies is not None:
            self._copies.remove()
        if self._deleter is not None and not self._deleter.wait(CLOSE_SECONDS):
            logger.warning("Old checkpoints in %s are not deleted yet; the next run does it", self.directory)

    def _next(self, what: str) -> str:
        self._count += 1
        return f"{what}/{self._count}"

    def _open(self) -> None:
        """Learns what is there, and has the remains of interrupted saves deleted. Nobody else writes here."""
        if self._is_open:
            return
        self._is_open = True
        if not self._runtime.is_lead:
            return
        try:
            interrupted = self._slots.look(self.directory)
        except Exception as error:
            raise ownership.unusable(self.directory, error) from error
        self._deleter = Deleter(self.directory, self._retention, self._confirm_claim)
        for step in interrupted:
            self._deleter.discard(step)

    def _agree(self, name: str, step: int, wait_seconds: float) -> tuple[str, str]:
        """What process 0 decides about a save, and why; the same on all processes."""
        talk = self._runtime.coordination
        limit = wait_seconds + PLAN_SECONDS
        plan, why = talk.lead_decides(f"{name}/plan", lambda: self._plan(step, wait_seconds), limit_seconds=limit)
        if plan == ASK:
            answers = talk.gather(f"{name}/stuck", self._slots.answer(step), limit_seconds=PLAN_SECONDS)
            plan, why = talk.lead_decides(f"{name}/place", lambda: self._make_place(step, answers), limit_seconds=limit)
        return plan, why

    def _plan(self, step: int, wait_seconds: float) -> tuple[str, str]:
        if self._pending is not None and wait_seconds:
            self.finish(wait_seconds)
        if self._pending is not None:
            return LATER, f"step {self._pending.step} is still being saved"
        if self._slots.is_committed(step):
            return PRESENT, ""
        if self._alarm.since is not None or self._slots.is_taken(step):
            return ASK, ""
        return GO, ""

    def _make_place(self, step: int, answers: Sequence[Answer]) -> tuple[str, str]:
        assert self._deleter is not None
        if why := self._slots.make(step, answers, self._deleter, limit_seconds=PLAN_SECONDS / 2):
            # No save is begun that could fail.
            self._alarm.check(self.committed_step)
            return LATER, why
        return GO, ""

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
            # Its remains would take the room of the next one.
            self._deleter.discard(pending.step)
        self._alarm.check(self.committed_step)
        return False
