"""Whether a step can be saved: which files it already has, and which abandoned saves still write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.retention import Deleter
from tpujob_trainer.checkpoint.save import PendingSave

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
