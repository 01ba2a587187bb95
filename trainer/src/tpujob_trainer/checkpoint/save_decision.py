"""Whether a save starts, decided by process 0, and whether a run whose saves fail goes on."""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Collection, Sequence

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.retention import Deleter
from tpujob_trainer.checkpoint.save import Outcome, PendingSave
from tpujob_trainer.values import errors


class Decision(enum.StrEnum):
    """What to do about a requested save."""

    START = "start"
    ASK_ALL = "ask all"
    """Something is or was in the way: every process first reports what it still writes."""
    POSTPONE = "postpone"
    ALREADY_SAVED = "already saved"


@dataclasses.dataclass(frozen=True)
class SavePlan:
    """A decision and its reason."""

    decision: Decision
    reason: str = ""

    def to_json(self) -> list[str]:
        """The plan as `from_json` reads it."""
        return [self.decision.value, self.reason]

    @classmethod
    def from_json(cls, values: list[str]) -> SavePlan:
        """The plan that another process made."""
        return cls(Decision(values[0]), values[1])


def decide(*, under_way: int | None, is_committed: bool, is_failing: bool, is_taken: bool) -> SavePlan:
    """The plan for a step.

    Args:
        under_way: The step of a save that is not over yet.
        is_committed: Whether the step is a checkpoint.
        is_failing: Whether the last save failed.
        is_taken: Whether the step has, or had, files in the directory.
    """
    if under_way is not None:
        return SavePlan(Decision.POSTPONE, f"step {under_way} is still being saved")
    if is_committed:
        return SavePlan(Decision.ALREADY_SAVED)
    if is_failing or is_taken:
        return SavePlan(Decision.ASK_ALL)
    return SavePlan(Decision.START)


MAX_STUCK = 2
"""Abandoned saves that still hold their copy of the state in host memory; with this many, no save starts."""

Answer = tuple[int, bool]
"""The answer of one process about a step: how many saves are stuck, and whether it still writes to that step."""


class StepSlots:
    """The steps of one directory, as this run knows them; only process 0 lists the directory."""

    def __init__(self) -> None:
        """There are no steps."""
        self._committed: set[int] = set()
        self._occupied: set[int] = set()
        """Steps with files that are no checkpoint."""
        self._tried: dict[int, PendingSave] = {}
        self._stuck: list[PendingSave] = []

    def look(self, directory: str) -> list[int]:
        """Lists the directory; returns the steps with remains of interrupted saves."""
        self._committed = set(layout.committed(directory))
        remains = layout.leftovers(directory)
        self._occupied = set(remains)
        return [step for step in remains if not layout.is_set_aside(directory, step)]

    def is_committed(self, step: int) -> bool:
        """Whether the step is a checkpoint."""
        return step in self._committed

    def is_taken(self, step: int) -> bool:
        """Whether the step has files that are no checkpoint, or a save of it was started."""
        return step in self._occupied or step in self._tried

    def begun(self, save: PendingSave) -> None:
        """Records that a save was started."""
        self._tried[save.step] = save

    def committed(self, step: int) -> None:
        """Records that the step became a checkpoint."""
        self._committed.add(step)

    def gone(self, step: int) -> None:
        """Records that the step is no longer a checkpoint, because its files were deleted."""
        self._committed.discard(step)

    def given_up(self, save: PendingSave) -> None:
        """Records a save that was abandoned, and may still write."""
        self._stuck.append(save)

    def set_aside(self, steps: Collection[int]) -> None:
        """Records steps that are no longer checkpoints."""
        self._committed.difference_update(steps)
        self._occupied.update(steps)

    def answer(self, step: int) -> Answer:
        """What this process knows that prevents a save of the step."""
        self._stuck = [save for save in self._stuck if save.is_writing]
        tried = self._tried.get(step)
        return len(self._stuck), tried is not None and tried.is_writing

    def make(self, step: int, answers: Sequence[Answer], deleter: Deleter, *, limit_seconds: float) -> str:
        """Deletes the remains of the step; returns why it cannot be saved, or "". For process 0."""
        if max(stuck for stuck, _ in answers) >= MAX_STUCK:
            return f"{MAX_STUCK} saves that were given up still wait for storage"
        if any(is_writing for _, is_writing in answers):
            return "an earlier save of the same step still waits for storage"
        if self.is_taken(step):
            deleter.discard(step)
            if not deleter.wait(limit_seconds):
                return "what lies in its place is not deleted yet"
            self._occupied.discard(step)
        return ""


class Alarm:
    """An alarm that is on from the first failed save to the next commit."""

    def __init__(self, directory: str, *, limit_seconds: float, clock: Callable[[], float] = time.time) -> None:
        """The alarm is off.

        Args:
            directory: Named in the error.
            limit_seconds: The age of the last commit at which a run whose saves fail ends.
            clock: Unix seconds.
        """
        self.since: float | None = None
        """When saves began to fail, in Unix seconds; None: the last one was committed."""
        self._directory = directory
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._safe_at: float | None = None
        """The last time at which nothing could be lost: the last commit, or the start of this attempt's first save."""
        self._why = Outcome()
        self._is_repeated = False

    @property
    def problem(self) -> str:
        """Why the last save failed; empty while the alarm is off."""
        return "" if self.since is None else self._why.problem

    def begun(self) -> None:
        """Records that a save was started."""
        if self._safe_at is None:
            self._safe_at = self._clock()

    def committed(self) -> None:
        """Records a commit, which ends the alarm."""
        self.since, self._safe_at, self._is_repeated = None, self._clock(), False

    def failed(self, why: Outcome, *, elapsed_seconds: float) -> None:
        """Records a failed save, and how long it took."""
        self._is_repeated = self.since is not None
        if self.since is None:
            self.since = self._clock() - elapsed_seconds
        self._why = why

    def check(self, committed_step: int | None, *, is_repeated: bool = False) -> None:
        """Returns if the run may continue.

        A failed save is retried once, however old the last commit is, unless the limit is 0: one 503 response does not
        end a run that saves seldom.

        Args:
            committed_step: The newest checkpoint.
            is_repeated: Whether the save was already retried, even if no retry could start.

        Raises:
            NotFoundError: saves have failed for too long, and storage refuses them.
            TrainerError: saves have failed for too long.
        """
        if self.since is None or self._safe_at is None:
            return
        if self._limit_seconds and not (self._is_repeated or is_repeated):
            return
        age = self._clock() - self._safe_at
        if age < self._limit_seconds:
            return
        kind = errors.NotFoundError if self._why.is_refused else errors.TrainerError
        newest = (
            "there is no checkpoint" if committed_step is None else f"the newest checkpoint is step {committed_step}"
        )
        raise kind(
            f"spec.checkpointDir: saves to {self._directory} fail, and nothing was committed for {age:.0f} s; "
            f"{newest}; the last failure: {self._why.problem}; "
            "spec.trainer.checkpoint.failAfterSeconds says how old the last commit may become"
        )
