"""Rows per second of all workers."""

import pytest

from tpujob_trainer.corpus.workers.states import Rate


@pytest.mark.parametrize(
    ("seen", "now", "rate"),
    [
        ([], 10, None),
        ([(0, 500)], 10, None),
        ([(0, 500), (2, 520)], 2, None),
        ([(0, 500), (10, 600)], 10, 10.0),
        ([(0, 500), (10, 600)], 20, 5.0),
        ([(0, 0), (100, 1000), (500, 2000), (600, 3000)], 600, 4.0),
    ],
    ids=["nothing", "only what was done before", "too short", "two looks", "nothing since", "the last five minutes"],
)
def test_rate_is_that_of_the_last_minutes(seen, now, rate):
    found = Rate(window_seconds=300)
    for when, rows in seen:
        found.add(when, rows)
    assert found.rows_per_second(now) == (None if rate is None else pytest.approx(rate))


def test_rate_keeps_an_entry_a_second():
    found = Rate(window_seconds=300)
    for number in range(100_000):
        found.add(number / 100, number)
    assert len(found._seen) < 310
    assert found.rows_per_second(1000) == pytest.approx(100, rel=0.01)
