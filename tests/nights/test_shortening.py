"""A shorter list that still fails is found, whichever items it needs, and within its time."""

import pytest

from tests.fakes import Clock
from tests.nights.shortening import shortest


@pytest.mark.parametrize("needed", [{0}, {19}, {3, 17}, {0, 1, 2}, {5, 9, 14}])
def test_only_what_is_needed_is_left(needed: set[int]) -> None:
    left = shortest(list(range(20)), lambda part: needed <= set(part), limit_seconds=1, clock=lambda: 0.0)
    assert left == sorted(needed)


def test_the_search_ends_with_its_time(clock: Clock) -> None:
    played = []

    def fails(part: list[int]) -> bool:
        clock.wait(10)
        played.append(part)
        return 7 in part

    left = shortest(list(range(20)), fails, limit_seconds=25, clock=clock)
    assert len(played) == 3
    assert 7 in left
    assert len(left) < 20
