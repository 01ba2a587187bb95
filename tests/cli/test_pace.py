import pytest

from tpujob.local.pace import Pace, clock
from tpujob.output.words import sparkline


def training(step: int, **facts: object) -> dict:
    return {"phase": "training", "step": step, "steps": 100, "loss": 5.0 - step / 50, **facts}


def test_remaining_follows_the_pace_and_counts_down():
    pace = Pace(started=0.0)
    pace.note(training(1), 10.0)
    assert pace.remaining(10.0) is None
    pace.note(training(11), 30.0)
    assert pace.remaining(30.0) == pytest.approx(89 * 2.0)
    assert pace.remaining(40.0) == pytest.approx(89 * 2.0 - 10)
    assert pace.elapsed(40.0) == 40.0


def test_other_phases_do_not_count_as_steps():
    pace = Pace(started=0.0)
    pace.note({"phase": "compiling", "step": 50, "steps": 100}, 1.0)
    pace.note(training(51), 2.0)
    assert pace.remaining(2.0) is None


def test_no_time_is_left_to_name_after_the_last_step():
    pace = Pace(started=0.0)
    pace.note(training(1), 10.0)
    pace.note(training(100), 30.0)
    assert pace.remaining(30.0) is None


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], ""),
        ([2.0, 1.0], "█▁"),
        ([1.0, 1.0], "▁▁"),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], "█▇▆▅▄▃▂▁"),
    ],
)
def test_a_sparkline_spans_the_values(values, line):
    assert sparkline(values) == line


def test_many_values_make_a_short_line():
    assert len(sparkline([float(i) for i in range(1000)])) == 16


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (760, "12:40"), (11100, "3:05:00")])
def test_clock(seconds, text):
    assert clock(seconds) == text
