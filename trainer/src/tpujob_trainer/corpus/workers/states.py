"""What a worker knows about each unit, and which one it tries next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from tpujob_trainer.corpus.workers import choice
from tpujob_trainer.corpus.workers.choice import DONE, FREE, TAKEN


class UnitStates:
    """The units of a list as free, taken or done; thread-safe."""

    def __init__(self, units: int) -> None:
        """All units are free."""
        self._states = np.full(units, FREE, dtype=np.uint8)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def num_done(self) -> int:
        """Units that are done, by any worker."""
        return int((self._states == DONE).sum())

    def done(self) -> np.ndarray:
        """Whether each unit is done, bool [units]."""
        with self._lock:
            return self._states == DONE

    def set(self, unit: int, state: int) -> None:
        """Records the state of a unit; one that is done stays done."""
        with self._lock:
            if self._states[unit] != DONE:
                self._states[unit] = state

    def set_done(self, done: np.ndarray) -> None:
        """Records the finished units, bool [units]."""
        with self._lock:
            self._states[done] = DONE

    def reopen(self, units: Sequence[int]) -> None:
        """Frees units that were done and no longer are."""
        with self._lock:
            self._states[list(units)] = FREE

    def taken(self) -> list[int]:
        """The units that any worker has claimed, this one included."""
        with self._lock:
            return [int(unit) for unit in np.flatnonzero(self._states == TAKEN)]

    def next_free(self, after: int | None, chance: Callable[[], float]) -> int | None:
        """The unit to claim next, as in `choice.next_unit`."""
        with self._lock:
            return choice.next_unit(self._states, after, chance)
