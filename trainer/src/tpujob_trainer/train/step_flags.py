"""Flags that processes exchange inside the step, so that all of them act at the same step.

Each process adds its numbers to every row of its part of the batch; the step returns the maximum of each column, and
all processes read that with the metrics. This needs no extra collective, and no agreement on a step number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLUMNS = 5
HORIZON_SECONDS = 1_000_000
"""The longest remaining time that is sent; longer ones are sent as this."""


@dataclass(frozen=True, kw_only=True)
class StepFlags:
    """The flags of one process before the step, and of all processes combined after it."""

    stop: bool = False
    """Whether the process is asked to stop; combined: any process."""
    seconds_left: float = float("inf")
    """Time until the process is killed; combined: the least."""
    save: bool = False
    """Whether to save after this step; only process 0 sets it, by its clock."""
    save_seconds: float = 0.0
    """Time from the last save to its commit; combined: the longest. 0: none yet."""
    batches_left: int = 2
    """Batches after this one with data for the process's rows, 2 for two or more; combined: the most."""

    def pack(self) -> np.ndarray:
        """The flags as int32 [5], whose maximum over all processes is the combined value."""
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
