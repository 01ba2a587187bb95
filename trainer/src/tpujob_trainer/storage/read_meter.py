"""Counts what this process reads of its data and what fails, and has the message to log while reading is slow.

Every byte of a data file that this process requests from its storage is counted here, local disks included.
"""

import collections
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

CAUSES = ("rate_limited", "unavailable", "timeout", "truncated", "reset", "changed", "missing", "unreadable")
"""Why reads are retried."""
SLOW_READ_SECONDS = 10.0
"""A single request that takes longer is logged."""
FAILING_SECONDS = 3.0
"""A read that has been retried for longer than this is logged."""
WINDOW_SECONDS = 60.0
"""The window in which the wait for data is measured."""
SLOW_FRACTION = 0.1
"""Waiting for a larger fraction of the time is logged."""


@dataclass(frozen=True)
class Trouble:
    """A read that has failed, and is being retried."""

    what: str
    since: float
    tries: int
    error: str


class ReadMeter:
    """Counts reads; may be used by several threads. Times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[str, float]] = {}
        self._troubles: dict[str, Trouble] = {}
        self.bytes_read = 0
        """Bytes of data files that the storage has delivered."""
        self.requests = 0
        """Reads, one range each, and listings, including retries."""
        self.retries: collections.Counter[str] = collections.Counter()
        """Retries by cause."""
        self.rows: collections.Counter[str] = collections.Counter()
        """Rows read: the number of `used` ones, and of those skipped for each cause."""
        self._waited = 0.0
        self._waiting_since: float | None = None
        self._waits: collections.deque[tuple[float, float]] = collections.deque()

    @contextlib.contextmanager
    def request(self, what: str) -> Iterator[None]:
        """Wraps one request to the storage."""
        number = next(self._numbers)
        with self._lock:
            self.requests += 1
            self._under_way[number] = (what, self._clock())
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[number]

    def delivered(self, num_bytes: int) -> None:
        """Counts bytes that have arrived."""
        with self._lock:
            self.bytes_read += num_bytes

    def failed(self, what: str, cause: str, error: str) -> None:
        """Records that a read failed and will be retried."""
        with self._lock:
            self.retries[cause] += 1
            before = self._troubles.get(what)
            since, tries = (before.since, before.tries) if before else (self._clock(), 0)
            self._troubles[what] = Trouble(what, since, tries + 1, error)

    def ended(self, what: str) -> None:
        """Records that a read that failed before has succeeded, or was given up."""
        with self._lock:
            self._troubles.pop(what, None)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wraps the time for which training waits for a batch."""
        with self._lock:
            now = self._waiting_since = self._clock()
            self._waits.append((now, self._waited))
            while len(self._waits) > 2 and self._waits[0][0] < now - WINDOW_SECONDS:
                self._waits.popleft()
        try:
            yield
        finally:
            with self._lock:
                self._waited += self._clock() - now
                self._waiting_since = None

    def wait_fraction(self) -> float | None:
        """The fraction of the last minute for which training waited for data; None: before the second batch."""
        with self._lock:
            return self._wait_fraction()[0]

    def facts(self) -> dict[str, Any]:
        """The fields of the report about reading, with their current values."""
        fraction = self.wait_fraction()
        return {
            "data_wait_fraction": None if fraction is None else round(fraction, 4),
            "data_slow_message": self.slow_message(),
        }

    def _wait_fraction(self) -> tuple[float | None, float]:
        """The fraction, and the seconds that it refers to."""
        now = self._clock()
        waited = self._waited + (now - self._waiting_since if self._waiting_since is not None else 0.0)
        if len(self._waits) < 2:
            return None, 0.0
        # The very first wait is the start-up of reading, not a sign of a slow storage.
        began, before = self._waits[0] if self._waits[0][1] else self._waits[1]
        seconds = now - began
        return ((waited - before) / seconds if seconds > 0 else 0.0), seconds

    def slow_message(self) -> str | None:
        """One line about what keeps this process waiting; None: nothing does."""
        now = self._clock()
        with self._lock:
            failing = min(self._troubles.values(), key=lambda trouble: trouble.since, default=None)
            slow = min(self._under_way.values(), key=lambda read: read[1], default=None)
            fraction, seconds = self._wait_fraction()
        if failing and now - failing.since > FAILING_SECONDS:
            since = now - failing.since
            return f"reading {failing.what} fails since {since:.0f} s, {failing.tries} tries: {failing.error}"
        if slow and now - slow[1] > SLOW_READ_SECONDS:
            return f"reading {slow[0]} has taken {now - slow[1]:.0f} s by now"
        if fraction is not None and fraction > SLOW_FRACTION and seconds > WINDOW_SECONDS / 2:
            return f"training waited for data for {fraction:.0%} of the last {seconds:.0f} s"
        return None


METER = ReadMeter()
"""The meter of this process."""
