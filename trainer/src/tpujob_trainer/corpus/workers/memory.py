"""Returns freed memory to the system.

glibc has memory arenas for threads, up to eight for each core, and keeps what is freed in the middle of one. A worker
with a bucket has a dozen threads: over thousands of units it needs no more memory, but its process grows.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

TRIM_SECONDS = 30.0


def release_memory() -> None:
    """Returns free pages to the system; does nothing if the C library is not glibc.

    It takes some milliseconds for each 100 MB (https://man7.org/linux/man-pages/man3/malloc_trim.3.html).
    """
    if sys.platform == "linux" and (found := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        found(ctypes.c_size_t(0))


class MemoryRelease:
    """Releases memory at most once in an interval."""

    def __init__(self, *, every_seconds: float = TRIM_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        """The first call releases memory."""
        self._every_seconds, self._clock = every_seconds, clock
        self._trimmed = -float("inf")

    def __call__(self) -> None:
        """Releases memory, unless the last release is less than an interval ago."""
        if self._clock() - self._trimmed >= self._every_seconds:
            release_memory()
            self._trimmed = self._clock()
