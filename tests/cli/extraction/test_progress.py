import io

import pytest
from rich.console import Console

from tpujob.job.questions.extraction import describe, priced, verified, watched
from tpujob.output.words import digits, duration, size

STATUS = {
    "units": 100,
    "done": 25,
    "claimed": 8,
    "left": 67,
    "rows": 2500,
    "rows_total": 10_000,
    "rows_skipped": {"null": 3},
    "tokens": 1_280_000,
    "bytes": 36_700_000_000,
    "rows_per_second": 70.25,
    "seconds_left": 107.0,
    "taken_over": 2,
    "not_finite": 0,
    "workers": [
        {
            "worker": "0",
            "units": 20,
            "rows": 2000,
            "files": 40,
            "claimed": 8,
            "host": "features-w-0-3",
            "rows_per_second": 60.0,
            "last_time": 997.0,
        },
        {
            "worker": "1",
            "units": 5,
            "rows": 500,
            "files": 1,
            "claimed": 0,
            "rows_per_second": None,
            "last_time": 1001.0,
        },
    ],
    "failures": {"storage": 4},
    "last_failure": {"worker": "job-1-aa", "message": "ConnectionError: 503"},
}
LINES = [
    "units    25 of 100 done, 8 claimed, 67 left",
    "rows     2,500 of 10,000, 3 left out (null); 1,280,000 tokens, 36.7 GB",
    "rate     70.2 rows/s, 107 s left",
    "retaken  2 units, whose first worker had gone silent",
    "failed   4 times: storage",
    "         last: job-1-aa: ConnectionError: 503",
    "worker      0: 20 units, 2,000 rows, 40 files, 60.0 rows/s, 8 claimed by features-w-0-3, last heard of 3 s ago",
    "worker      1: 5 units, 500 rows, 1 file, rate unknown yet, last heard of 0 s ago",
]


def test_status_in_lines():
    assert list(describe(STATUS, now=1000.0)) == LINES


def test_nobody_is_listened_for_when_all_is_done():
    assert "last heard of" not in "".join(describe({**STATUS, "done": 100, "claimed": 0, "left": 0}, now=1e6))


CHIPS = {
    "chip_kind": "TPU v4",
    "chip_hours": 10.71,
    "chip_hours_left": 128.4,
    "rows_per_chip_second": 24.25,
    "tokens_per_chip_second": 12_416.4,
}


@pytest.mark.parametrize(
    ("changes", "price", "lines"),
    [
        pytest.param(
            CHIPS,
            None,
            [
                "chips    10.7 chip-hours (TPU v4) so far, 128 left, without start-up",
                "         measured for each: 24.25 rows/s, 12,416 tokens/s",
            ],
            id="no price",
        ),
        pytest.param(
            {**CHIPS, "peak_fraction": 0.3874},
            None,
            [
                "chips    10.7 chip-hours (TPU v4) so far, 128 left, without start-up",
                "         measured for each: 24.25 rows/s, 12,416 tokens/s, 38.7% of its peak in bfloat16",
            ],
            id="the part of its peak",
        ),
        pytest.param(
            CHIPS,
            3.22,
            [
                "chips    10.7 chip-hours (TPU v4) so far, 128 left, without start-up",
                "         measured for each: 24.25 rows/s, 12,416 tokens/s",
                "cost     34.5 so far, 413 left, at 3.22 an hour",
            ],
            id="a price",
        ),
        pytest.param(
            {**CHIPS, "chip_kind": "cpu", "chip_hours": 0.00219, "done": 100},
            2,
            [
                "chips    0.00219 device-hours (cpu) so far, without start-up",
                "         measured for each: 24.25 rows/s, 12,416 tokens/s",
                "cost     0.00438 so far, at 2 an hour",
            ],
            id="complete, on CPUs",
        ),
        pytest.param(dict.fromkeys(CHIPS), 2, [], id="nothing measured"),
    ],
)
def test_chip_hours_and_their_price(changes, price, lines):
    shown = list(describe(priced({**STATUS, **changes}, price)))
    first = shown.index(next(line for line in shown if line.startswith("rate"))) + 1
    assert shown[first : shown.index(LINES[3])] == lines


def test_live_table_has_bar_and_workers():
    stream = io.StringIO()
    watched([STATUS, {**STATUS, "done": 100, "claimed": 0, "left": 0}], Console(file=stream, width=100))
    shown = stream.getvalue()
    assert "25%" in shown
    assert "100%" in shown
    assert "units    100 of 100 done" in shown
    assert "WORKER  UNITS   ROWS  FILES  ROWS/S  CLAIMED" in shown
    assert "features-w-0-3" in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (119, "119 s"), (120, "2 min"), (7500, "2 h 05 min"), (90_000, "25 h 00 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.00001, "less than 0.0001"), (0.0219, "0.0219"), (99.96, "100"), (12_345.6, "12,346")],
)
def test_three_digits(number, text):
    assert digits(number) == text


@pytest.mark.parametrize(("num_bytes", "text"), [(1500, "1.5 kB"), (512e6, "512.0 MB"), (1.468e12, "1.47 TB")])
def test_sizes(num_bytes, text):
    assert size(num_bytes) == text


@pytest.mark.parametrize(
    ("problems", "leftovers", "end"),
    [
        pytest.param([], 0, "every checksum is right", id="whole"),
        pytest.param(["x", "y"], 0, "2 problems", id="problems"),
        pytest.param(
            [], 0, "right; warning: 7 values are not finite; float16 ends at 65504, bfloat16 does not", id="inf"
        ),
        pytest.param([], 3, "right; 3 leftover files (1.0 MB) of dead workers", id="leftovers"),
    ],
)
def test_verdict_of_verify(problems, leftovers, end):
    not_finite = 7 if "finite" in end else 0
    found = {"problems": problems, "units": 4, "rows": 32, "files": 4, "bytes": 5e9, "not_finite": not_finite}
    line = verified({**found, "leftover_files": leftovers, "leftover_bytes": leftovers and 1_000_000})
    assert line.startswith("4 units, 32 rows, 4 files, 5.0 GB: ")
    assert line.endswith(end)
