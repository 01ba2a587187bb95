"""What a worker knows about each unit, which one it tries next, and how fast all of them go on.

A worker continues with the unit after its last one, whose row group it has already read. If another worker has claimed
that, it moves to a random place in one of the longest free stretches, so that workers spread out and meet seldom,
whatever their number.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

FREE, TAKEN, DONE = 0, 1, 2
"""What a worker knows about a unit: nothing, that a worker has claimed it, that it is finished."""

STRETCHES = 8
"""Number of longest free stretches that are chosen from."""


def next_unit(states: np.ndarray, after: int | None, chance: Callable[[], float]) -> int | None:
    """A unit to claim; None: none is free.

    Args:
        states: uint8 [units], as this worker knows them.
        after: the unit that it claimed last; None at its start.
        chance: a number from 0 to 1, excluding 1.
    """
    if after is not None and after + 1 < len(states) and states[after + 1] == FREE:
        return after + 1
    first, length = free_stretches(states)
    if not len(first):
        return None
    longest = np.argsort(-length, kind="stable")[:STRETCHES]
    at = int(longest[int(chance() * len(longest))])
    return int(first[at]) + int(chance() * int(length[at]))


def free_stretches(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first unit and the length of each stretch of free units, int64 [stretches]."""
    is_free = np.concatenate([[False], states == FREE, [False]])
    edges = np.flatnonzero(is_free[1:] != is_free[:-1])
    return edges[::2], edges[1::2] - edges[::2]


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
        """The unit to claim next, as in `next_unit`."""
        with self._lock:
            return next_unit(self._states, after, chance)


WINDOW_SECONDS = 300.0
APART_SECONDS = 1.0
"""Least time between two entries that are kept, however many units are done in a second."""
LEAST_SECONDS = 5.0
"""Least time for a rate: in shorter times, it depends more on when the listing was made than on the work."""


class Rate:
    """The rate over the last minutes."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        """Nothing is known yet."""
        self._window_seconds = window_seconds
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, rows: int) -> None:
        """Records how many rows are done; those of the first call were done before."""
        if self._seen and rows == self._seen[-1][1] and len(self._seen) > 1:
            return
        if len(self._seen) > 1 and now - self._seen[-2][0] < APART_SECONDS:
            self._seen.pop()
        self._seen.append((now, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._window_seconds:
            self._seen.popleft()

    def rows_per_second(self, now: float) -> float | None:
        """Rows per second until now; None: there is no result yet, or too little time has passed."""
        if len(self._seen) < 2:
            return None
        (start, before), (_, rows) = self._seen[0], self._seen[-1]
        seconds = now - start
        return None if seconds < LEAST_SECONDS else (rows - before) / seconds
