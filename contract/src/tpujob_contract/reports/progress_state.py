"""The progress of a process, as its trainer reports it to its launcher, and launchers to launcher 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Tuple

_MOST = 2.0**53
"""Limit for steps and seconds: larger numbers are not real progress, and a float may not hold them."""


@dataclass(frozen=True)
class ProgressState:
    """The progress of a process, as it reports it."""

    phase: str = "starting"
    step: int = 0
    progress_count: int = 0
    """Signs of progress so far: steps and changes of phase. All processes of a run have the same ones."""
    seconds: float = 0.0
    """Seconds since the last sign."""
    where: str = ""
    """What its main thread is executing: file, line and function."""
    waits: bool = False
    """Whether the main thread waits for the other processes."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ProgressState:
        """The progress in a message from the network.

        Raises:
            ValueError: The message is invalid.
        """
        try:
            found = cls(**values)
        except TypeError as error:
            raise ValueError("no progress") from error
        numbers = (found.step, found.progress_count, found.seconds)
        are_numbers = all(isinstance(each, (int, float)) and abs(each) < _MOST for each in numbers)
        if not are_numbers or not isinstance(found.where, str):
            raise ValueError("no progress")
        return found

    @property
    def progress(self) -> Tuple[int, int]:
        """Step and signs of progress, comparable between the processes of a run."""
        return (self.step, self.progress_count)

    def __str__(self) -> str:
        return f"{self.phase}, after step {self.step}" + (f", at {self.where}" if self.where else "")
