"""What processes tell each other inside the step, so that all of them act on the same step.

Each process writes its numbers beside every row of the batch it holds; the step returns the greatest of each column,
and everybody reads that with the metrics. No extra collective, and no step number to agree on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLUMNS = 5
HORIZON_SECONDS = 1_000_000
"""Longer times left are sent as this."""


@dataclass(frozen=True, kw_only=True)
class StepFlags:
    """Of one process when given; of all processes when read."""

    stop: bool = False
    """Asked to stop; any of them."""
    seconds_left: float = float("inf")
    """Until the process is killed; the least of them."""
    save: bool = False
    """Save after this step: process 0, whose clock decides."""
    save_seconds: float = 0.0
    """What the last save took until its commit; the longest of them. 0: none yet."""
    batches_left: int = 2
    """Batches after this one that have anything for a process's rows, 2 for two or more; the most of them."""

    def pack(self) -> np.ndarray:
        """int32 [5], such that the greatest of all processes is the answer."""
        left = int(min(max(self.seconds_left, 0), HORIZON_SECONDS))
        numbers = (self.stop, HORIZON_SECONDS - left, self.save, np.ceil(self.save_seconds), self.batches_left)
        return np.array(numbers, np.int32)


def unpack(columns: np.ndarray) -> StepFlags:
    """The flags of all processes combined."""
    stop, spent, save, save_seconds, batches_left = (int(value) for value in columns)
    left = HORIZON_SECONDS - spent
    return StepFlags(
        stop=bool(stop),
        seconds_left=float("inf") if left == HORIZON_SECONDS else float(left),
        save=bool(save),
        save_seconds=float(save_seconds),
        batches_left=batches_left,
    )
