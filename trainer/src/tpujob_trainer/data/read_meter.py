"""What this process reads of its data, and what goes wrong with it: counted where it happens, told while it lasts.

Every byte of a data file that this process asks its storage for goes through here, local disks included.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SLOW_READ_SECONDS = 10.0
"""A single request that takes longer is told of."""
FAILING_SECONDS = 3.0
"""A read that has been repeated for longer than this is told of."""


@dataclass(frozen=True)
class Trouble:
    """A read that has failed, and is being repeated."""

    what: str
    since: float
    tries: int
    error: str


class ReadMeter:
    """Counts; may be used by several threads. Times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[str, float]] = {}
        self._troubles: dict[str, Trouble] = {}
        self.bytes_read = 0
        """Bytes of data files that the storage has delivered."""
        self.requests = 0
        """Reads, one range each, and listings; the repeated ones too."""
        self.retries: collections.Counter[str] = collections.Counter()
        """Repetitions by cause."""

    @contextlib.contextmanager
    def request(self, what: str) -> Iterator[None]:
        """Around one request to the storage."""
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
        """Count bytes that have arrived."""
        with self._lock:
            self.bytes_read += num_bytes

    def failed(self, what: str, cause: str, error: str) -> None:
        """Say that a read failed and will be repeated."""
        with self._lock:
            self.retries[cause] += 1
            before = self._troubles.get(what)
            since, tries = (before.since, before.tries) if before else (self._clock(), 0)
            self._troubles[what] = Trouble(what, since, tries + 1, error)

    def ended(self, what: str) -> None:
        """Say that a read that failed before has succeeded, or was given up."""
        with self._lock:
            self._troubles.pop(what, None)

    def slow_message(self) -> str | None:
        """One line about the read that keeps this process waiting longest; None while all is well."""
        now = self._clock()
        with self._lock:
            failing = min(self._troubles.values(), key=lambda trouble: trouble.since, default=None)
            slow = min(self._under_way.values(), key=lambda read: read[1], default=None)
        if failing and now - failing.since > FAILING_SECONDS:
            seconds = now - failing.since
            return f"reading {failing.what} fails since {seconds:.0f} s, {failing.tries} tries: {failing.error}"
        if slow and now - slow[1] > SLOW_READ_SECONDS:
            return f"reading {slow[0]} has taken {now - slow[1]:.0f} s by now"
        return None


METER = ReadMeter()
"""Of this process."""
