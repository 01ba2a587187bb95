"""Which unit a worker tries next. Pure.

A worker continues with the unit after its last one, whose row group it has already read. If another worker has claimed
that, it moves to a random place in one of the longest free stretches, so that workers spread out and meet seldom,
whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable

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
