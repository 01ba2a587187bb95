"""When to save and stop, and how long to wait for it: by flags that processes exchange inside the step.

Each process adds its numbers to every row of its part of the batch; the step returns the maximum of each column, and
all processes read that with the metrics. This needs no extra collective, and no agreement on a step number.

All processes count steps; process 0 measures time, and its request travels with a batch; whether there is time for a
save before a stop follows from the duration of the last save.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpujob_trainer.checkpoint.save import ANSWER_SECONDS
from tpujob_trainer.config.schema import CheckpointConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest

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


def is_due_by_steps(step: int, *, every: int | None, begun_at: int) -> bool:
    """Whether something is due after `step` steps, in a run that started at `begun_at`.

    Not at `begun_at` itself: that state is saved already, or not worth saving.
    """
    return every is not None and step > begun_at and step % every == 0


class SavePolicy:
    """Decides when to save states, by the configuration, a clock and a request to stop."""

    def __init__(
        self,
        config: CheckpointConfig,
        stop: StopRequest,
        *,
        decides: bool,
        measured_seconds: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The clock starts now.

        Args:
            config: When to save.
            stop: Whether this process is asked to stop, and how long it has.
            decides: Whether this process requests saves by its clock: process 0, if there is a checkpoint directory.
            measured_seconds: Returns the time from the last save to its commit; 0: none was measured.
            clock: Returns seconds.
        """
        self._config = config
        self._stop = stop
        self._decides = decides
        self._measured_seconds = measured_seconds
        self._clock = clock
        self._since = clock()
        self._again_at = math.inf

    def is_due(self, step: int, *, first: int, flags: StepFlags) -> bool:
        """Whether to save the state after `step` steps, in an attempt that started at `first`."""
        return flags.save or is_due_by_steps(step, every=self._config.every_steps, begun_at=first)

    def is_copy_due(self, step: int, *, first: int) -> bool:
        """Whether to copy the state after `step` steps to the hosts' disks."""
        local = self._config.local
        return local is not None and is_due_by_steps(step, every=local.every_steps, begun_at=first)

    def flags(self) -> StepFlags:
        """The flags of this process for the next batch."""
        seconds = self._measured_seconds()
        return StepFlags(
            stop=self._stop.requested, seconds_left=self._stop.seconds_left(), save=self._asks(), save_seconds=seconds
        )

    def stop_flags(self) -> StepFlags:
        """The same for batches that are not trained on: no save is requested with them."""
        return StepFlags(stop=self._stop.requested, seconds_left=self._stop.seconds_left())

    def fits(self, flags: StepFlags) -> bool:
        """Whether a save can be committed before the first process is killed.

        It must have twice the time of the last one. If none was measured (0), it is tried.
        """
        return flags.seconds_left >= 2 * flags.save_seconds

    def commit_seconds(self) -> float:
        """How long to wait for a running save when the run ends."""
        return min(self._stop.seconds_left(), self._config.timeout_seconds + ANSWER_SECONDS)

    def seconds_left(self) -> float:
        """Time until this process is killed; infinite while it is not asked to stop."""
        return self._stop.seconds_left()

    def saved(self) -> None:
        """Records that a save was started, for any reason."""
        self._since = self._clock()
        self._again_at = math.inf

    def try_again(self, *, in_seconds: float) -> None:
        """Requests a save earlier than by the interval, because the last one failed."""
        self._again_at = self._clock() + in_seconds

    def _asks(self) -> bool:
        """Whether to request a save now; True only once per interval."""
        now = self._clock()
        if not self._decides or (now - self._since < self._config.every_seconds and now < self._again_at):
            return False
        self.saved()
        return True
