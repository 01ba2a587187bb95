import pytest

from tpujob_trainer.extract.progress import Finished, index_of, rows_per_second, seconds_left, summary
from tpujob_trainer.workers.results import OutputFile, UnitResult


def _finished(unit, time, *, worker="job-0-aa", rows=10, **more):
    file = OutputFile(name=f"out/{unit}.parquet", rows=rows, bytes=100, crc32c="0" * 8)
    result = UnitResult(
        unit=unit,
        rows=rows,
        tokens=50,
        files=(file,),
        checksum="",
        worker=worker,
        token="t",
        seconds=1.0,
        **{"skipped": {}, "statistics": {}, **more},
    )
    return Finished(result, time)


@pytest.mark.parametrize(
    ("times", "rate", "left"),
    [
        pytest.param([], None, None, id="nothing yet"),
        pytest.param([100], None, None, id="one"),
        pytest.param([100, 100], None, None, id="two at once"),
        pytest.param([100, 110], 1.0, 80.0, id="two"),
        pytest.param([0, 1000, 1100, 1200], 20 / 300 + 10 / 300, 600.0, id="the last five minutes"),
    ],
)
def test_rate_and_time_left(times, rate, left):
    finished = [_finished(unit, time) for unit, time in enumerate(times)]
    assert rows_per_second(finished) == (None if rate is None else pytest.approx(rate))
    assert seconds_left(len(times) + (8 if len(times) < 4 else 6), finished) == left


def test_complete_has_no_time_left():
    assert seconds_left(1, [_finished(0, 5)]) == 0.0


def test_figures_of_a_job():
    finished = [
        _finished(0, 100, skipped={"null": 2}),
        _finished(1, 110, worker="job-1-bb", taken_over_from="job-0-aa"),
        _finished(2, 120, worker="job-0-cc", statistics={"x": [1, 0, 0, 0, 0, 3]}),
    ]
    found = summary(
        {"units": 5, "rows": 50},
        finished,
        [{"worker": "job-10-dd", "token": "x"}],
        [{"cause": "storage", "time": 1}, {"cause": "storage", "time": 3}, {"cause": "data", "time": 2}],
    )
    assert (found["done"], found["claimed"], found["left"]) == (3, 1, 1)
    assert (found["rows"], found["rows_total"], found["rows_skipped"]) == (30, 50, {"null": 2})
    assert (found["taken_over"], found["not_finite"]) == (1, 3)
    assert found["failures"] == {"storage": 2, "data": 1}
    assert found["last_failure"]["time"] == 3
    assert [(each["worker"], each["units"], each["claimed"]) for each in found["workers"]] == [
        ("0", 2, 0),
        ("1", 1, 0),
        ("10", 0, 1),
    ]


@pytest.mark.parametrize(
    ("name", "index"), [("features-3-9f3a01", "3"), ("my-job-12-9f3a01", "12"), ("local-0-aa", "0"), ("odd", "odd")]
)
def test_number_of_a_worker(name, index):
    assert index_of(name) == index
