"""metrics.csv: whole at any moment, without steps that were taken back, bounded."""

import csv
import math
from pathlib import Path

import pandas
import pytest

from tpujob_trainer.telemetry import tracker_files
from tpujob_trainer.telemetry.tracker_files import INTERVAL_SECONDS, METRICS, MetricsFile, parse_metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def steps(folder: Path) -> list[int]:
    with (folder / METRICS).open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def test_it_is_read_by_pandas(tmp_path: Path):
    file = MetricsFile(str(tmp_path), first_step=0, now=lambda: 1.5e9)
    file.scalars(10, {"train/loss": 2.5, "train/learning_rate": 1e-3})
    file.scalars(20, {"train/loss": math.nan, "train/learning_rate": 2e-3})
    file.scalars(20, {"evaluation/loss": 2.25})
    file.close()
    table = pandas.read_csv(tmp_path / METRICS)
    assert list(table) == ["step", "time", "train/loss", "train/learning_rate", "evaluation/loss"]
    assert table["step"].tolist() == [10, 20]
    assert table["train/loss"][0] == 2.5
    assert math.isnan(table["train/loss"][1])
    assert table["evaluation/loss"].dropna().tolist() == [2.25]
    assert table["time"].tolist() == [1.5e9, 1.5e9]


def test_an_attempt_takes_back_later_steps_of_the_one_before(tmp_path: Path):
    first = MetricsFile(str(tmp_path), first_step=0)
    for step in (10, 20, 30):
        first.scalars(step, {"train/loss": 1.0})
    first.close()
    silent = MetricsFile(str(tmp_path), first_step=25)
    silent.close()
    assert steps(tmp_path) == [10, 20], "of an attempt that came to no step"
    second = MetricsFile(str(tmp_path), first_step=15)
    second.scalars(20, {"train/loss": 0.5})
    second.close()
    assert steps(tmp_path) == [10, 20]
    assert [row["train/loss"] for row in parse_metrics((tmp_path / METRICS).read_bytes())] == [1.0, 0.5]


def test_a_step_that_is_done_again_in_the_same_attempt_replaces_what_came_after(tmp_path: Path):
    file = MetricsFile(str(tmp_path), first_step=0)
    for step in (10, 20, 30, 20):
        file.scalars(step, {"train/loss": float(step)})
    file.close()
    assert steps(tmp_path) == [10, 20]


def test_it_is_written_now_and_then_and_at_the_end(tmp_path: Path):
    clock = Clock()
    file = MetricsFile(str(tmp_path), first_step=0, clock=clock)
    file.scalars(1, {"train/loss": 1.0})
    assert steps(tmp_path) == [1], "the first at once, so that one sees that there is something"
    file.scalars(2, {"train/loss": 1.0})
    assert steps(tmp_path) == [1]
    clock.now += INTERVAL_SECONDS
    file.scalars(3, {"train/loss": 1.0})
    assert steps(tmp_path) == [1, 2, 3]
    file.scalars(4, {"train/loss": 1.0})
    file.close()
    assert steps(tmp_path) == [1, 2, 3, 4]


def test_a_slow_storage_is_written_to_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    file = MetricsFile(str(tmp_path), first_step=0, clock=clock)

    def slow(rows: list[dict[str, float]]) -> str:
        clock.now += 2.0
        return "step,time\n"

    monkeypatch.setattr(tracker_files, "as_csv", slow)
    file.scalars(1, {})
    began = clock.now
    clock.now += 2.0 / tracker_files.PART_OF_TIME - 1.0
    file.scalars(2, {})
    assert clock.now < began + 100.0, "nothing was written"
    clock.now += 1.0
    file.scalars(3, {})
    assert clock.now == began + 102.0


def test_a_long_run_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracker_files, "MOST_ROWS", 8)
    file = MetricsFile(str(tmp_path), first_step=0, clock=Clock())
    for step in range(1, 21):
        file.scalars(step, {"train/loss": 1.0})
    file.close()
    kept = steps(tmp_path)
    assert len(kept) <= 8
    assert kept[-1] == 20
    assert kept == sorted(kept)


def test_a_file_that_somebody_has_edited_is_read_as_far_as_it_goes(tmp_path: Path):
    (tmp_path / METRICS).write_bytes(
        b"step,time,train/loss\n1,5,2.5\nnote to self\n2,,1\n3,6,x\n\xff\xfe,1,1\n4,7,1.5,9\n"
    )
    assert parse_metrics((tmp_path / METRICS).read_bytes()) == [
        {"step": 1, "time": 5, "train/loss": 2.5},
        {"step": 3, "time": 6},
        {"step": 4, "time": 7, "train/loss": 1.5},
    ]
