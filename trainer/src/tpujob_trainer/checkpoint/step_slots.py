"""Whether there is room for a step: what lies in its place, and which saves that were given up still write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.retention import Deleter
from tpujob_trainer.checkpoint.save import PendingSave

MAX_STUCK = 2
"""Saves that were given up and still hold their copy of the state in host memory; with more, none is begun."""

Answer = tuple[int, bool]
"""Of one process, about a step: how many saves are stuck, and whether it still writes to that step."""


class StepSlots:
    """The steps of one directory, as this run knows them; what is there, process 0 alone."""

    def __init__(self) -> None:
        """Nothing is there."""
        self._committed: set[int] = set()
        self._occupied: set[int] = set()
        """Steps in whose place something lies that is no checkpoint."""
        self._tried: dict[int, PendingSave] = {}
        self._stuck: list[PendingSave] = []

    def look(self, directory: str) -> list[int]:
        """Learns what is there; returns the steps that interrupted saves have left."""
        self._committed = set(layout.committed(directory))
        remains = layout.leftovers(directory)
        self._occupied = set(remains)
        return [step for step in remains if not layout.is_set_aside(directory, step)]

    def is_committed(self, step: int) -> bool:
        """Whether the step is a checkpoint."""
        return step in self._committed

    def is_taken(self, step: int) -> bool:
        """Whether something lies in the place of the step, or did."""
        return step in self._occupied or step in self._tried

    def begun(self, save: PendingSave) -> None:
        """A save is on its way."""
        self._tried[save.step] = save

    def committed(self, step: int) -> None:
        """It has become a checkpoint."""
        self._committed.add(step)

    def gone(self, step: int) -> None:
        """It is no checkpoint any more: its files were deleted."""
        self._committed.discard(step)

    def given_up(self, save: PendingSave) -> None:
        """It has not, and may still write."""
        self._stuck.append(save)

    def set_aside(self, steps: Collection[int]) -> None:
        """These are no checkpoints any more."""
        self._committed.difference_update(steps)
        self._occupied.update(steps)

    def answer(self, step: int) -> Answer:
        """What this process knows that hinders a save of the step."""
        self._stuck = [save for save in self._stuck if save.is_writing]
        tried = self._tried.get(step)
        return len(self._stuck), tried is not None and tried.is_writing

    def make(self, step: int, answers: Sequence[Answer], deleter: Deleter, *, limit_seconds: float) -> str:
        """Has what lies in the place of the step deleted; why there is no room, or nothing. For process 0."""
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
