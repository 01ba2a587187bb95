"""Tracks failing saves: since when, why, and when to end the run."""

from __future__ import annotations

import time
from collections.abc import Callable

from tpujob_trainer import errors
from tpujob_trainer.checkpoint.save import Outcome


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
