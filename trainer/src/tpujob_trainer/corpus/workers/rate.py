"""Rows per second of all workers together, from the number of rows done over time. Pure."""

from __future__ import annotations

from collections import deque

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
