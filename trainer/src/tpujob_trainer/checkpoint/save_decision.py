"""Whether a save starts: decided by process 0, the same on all processes."""

from __future__ import annotations

import dataclasses
import enum


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
