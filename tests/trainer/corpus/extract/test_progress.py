import pytest

from tpujob_trainer.corpus.extract.progress import Finished, chip_time, index_of, rows_per_second, seconds_left, summary
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult


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
        **{"seconds": 1.0, "skipped": {}, "statistics": {}, **more},
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


def test_a_worker_is_heard_of_by_its_units_and_its_leases():
    claims = [
        {"worker": "job-0-aa", "host": "pod-old", "time": 90.0},
        {"worker": "job-0-bb", "host": "pod-new", "time": 130.0},
        {"worker": "job-7-cc", "time": 0.0},
    ]
    found = summary({"units": 5, "rows": 50}, [_finished(0, 100), _finished(1, 120, worker="job-1-dd")], claims, [])
    assert [(each["worker"], each["host"], each["last_time"], each["files"]) for each in found["workers"]] == [
        ("0", "pod-new", 130.0, 1),
        ("1", None, 120, 1),
        ("7", None, None, 0),
    ]


@pytest.mark.parametrize(
    ("name", "index"), [("features-3-9f3a01", "3"), ("my-job-12-9f3a01", "12"), ("local-0-aa", "0"), ("odd", "odd")]
)
def test_number_of_a_worker(name, index):
    assert index_of(name) == index


@pytest.mark.parametrize(
    ("finished", "found"),
    [
        pytest.param([], (None, None, None, None), id="nothing yet"),
        pytest.param([_finished(0, 110)], (None, None, None, None), id="of an earlier release"),
        pytest.param([_finished(0, 110, seconds=36.0, chips=4)], (0.04, 0.16, 10 / 144, 50 / 144), id="one"),
        pytest.param(
            [
                _finished(0, 110, seconds=10.0, chips=4),
                _finished(1, 115, seconds=12.0, chips=4),
                _finished(2, 136, seconds=20.0, chips=4),
            ],
            (0.04, 0.04 / 3 * 2, 30 / 144, 150 / 144),
            id="units that overlap",
        ),
        pytest.param(
            [_finished(0, 110, seconds=9.0, chips=4), _finished(1, 500, worker="job-1-bb", seconds=9.0, chips=4)],
            (0.02, 0.03, 20 / 72, 100 / 72),
            id="two workers, one much later",
        ),
        pytest.param(
            [_finished(0, 110, seconds=36.0, chips=4), _finished(1, 20, worker="job-1-bb")],
            (0.08, 0.12, 10 / 144, 50 / 144),
            id="one that does not say",
        ),
    ],
)
def test_chip_hours_as_measured(finished, found):
    measured = chip_time(5, finished)
    hours, left, rows, tokens = found
    assert measured["chip_hours"] == (hours and pytest.approx(hours))
    assert measured["chip_hours_left"] == (left and pytest.approx(left, abs=1e-6))
    assert measured["rows_per_chip_second"] == (rows and pytest.approx(rows, abs=1e-3))
    assert measured["tokens_per_chip_second"] == (tokens and pytest.approx(tokens, abs=0.1))


V4 = {"seconds": 10.0, "chips": 4, "chip_kind": "TPU v4"}
NEEDED = 4 * 10 * 110_000_000_000_000
"""Two fifths of what four chips of 275 TFLOP/s do in ten seconds."""


@pytest.mark.parametrize(
    ("finished", "fraction"),
    [
        pytest.param([_finished(0, 110, **V4, flops=NEEDED)], 0.4, id="a unit"),
        pytest.param([_finished(0, 110, **V4)], None, id="of an earlier release"),
        pytest.param(
            [_finished(0, 110, **V4, flops=NEEDED), _finished(1, 120, **V4)], None, id="one that does not say"
        ),
        pytest.param([_finished(0, 110, **{**V4, "chip_kind": "cpu"}, flops=NEEDED)], None, id="no TPU"),
        pytest.param(
            # Two devices of 1,153.5 TFLOP/s are a chip.
            [_finished(0, 110, **{**V4, "chip_kind": "TPU7x"}, flops=4 * 10 * 1_153_500_000_000_000)],
            0.5,
            id="tpu7x",
        ),
        pytest.param(
            [
                _finished(0, 110, **V4, flops=NEEDED),
                _finished(1, 120, worker="job-1-bb", **{**V4, "chip_kind": "TPU v5"}, flops=NEEDED),
            ],
            None,
            id="chips of two kinds",
        ),
    ],
)
def test_part_of_the_peak(finished, fraction):
    assert chip_time(5, finished)["peak_fraction"] == (fraction and pytest.approx(fraction, abs=1e-3))
