"""Delays before retries."""

from __future__ import annotations

import random

FIRST_DELAY = 0.5
LONGEST_DELAY = 300.0
_random = random.SystemRandom()


def backoff_seconds(failures: int, *, first: float = FIRST_DELAY, longest: float = LONGEST_DELAY) -> float:
    """The delay after this number of failures in a row: doubles from `first` to `longest`, with ±50 % jitter."""
    delay = min(longest, first * 2.0 ** min(failures - 1, 30))
    return delay * _random.uniform(0.5, 1.5)
