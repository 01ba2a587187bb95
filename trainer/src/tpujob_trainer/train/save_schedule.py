"""When to save: by steps, which everybody can count, and by time, which process 0 decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from tpujob_trainer.config.schema import CheckpointConfig


def is_due_by_steps(step: int, *, every: int | None, begun_at: int) -> bool:
    """Whether the state after `step` steps is to be saved, in a run that began at `begun_at`.

    The state that a run begins with is saved already, or not worth it.
    """
    return every is not None and step > begun_at and step % every == 0


class SaveClock:
    """Process 0's clock: asks for a save when the last one was begun or asked for long enough ago."""

    def __init__(self, config: CheckpointConfig, *, decides: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """`decides` is True on process 0, and if there is anywhere to save to."""
        self._seconds = config.every_seconds
        self._decides = decides
        self._clock = clock
        self._since = clock()
        self._again_at = math.inf

    def asks(self) -> bool:
        """Whether to ask now; once, until the time has passed again."""
        now = self._clock()
        if not self._decides or (now - self._since < self._seconds and now < self._again_at):
            return False
        self.saved()
        return True

    def saved(self) -> None:
        """A save was begun, for whatever reason."""
        self._since = self._clock()
        self._again_at = math.inf

    def try_again(self, *, in_seconds: float) -> None:
        """The last save came to nothing: ask before it would be time again."""
        self._again_at = self._clock() + in_seconds


def fits(*, seconds_left: float, save_seconds: float) -> bool:
    """Whether a save still becomes a checkpoint before the process is killed; twice the last one's time is kept.

    Where none was measured (0), it is tried.
    """
    return seconds_left >= 2 * save_seconds
