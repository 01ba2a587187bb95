"""Many nights are played over days: what was played is known, and nothing is played twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.nights.results import Result, append, left, read, table

NIGHT = Result(seed=3, minutes=10.0, jobs=60, blows=150, fell=120, failed_attempts=40, writes=900, load=7.4, broken=())


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "nights.jsonl"
    results = [NIGHT, replace(NIGHT, seed=1, broken=("one_jobset_lives: 3.0 s",))]
    assert read(file) == []
    for each in results:
        append(file, each)
    assert read(file) == results


@pytest.mark.parametrize("line", ["", "{}", "[]", "{", '{"seed": 1, "broken": []}'])
def test_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "nights.jsonl"
    append(file, NIGHT)
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(ValueError, match=r"nights\.jsonl:2: no result of a night"):
        read(file)


def test_nights_that_were_played_are_left_out() -> None:
    played = [NIGHT, replace(NIGHT, seed=2, minutes=1.0), replace(NIGHT, seed=4, jobs=8)]
    assert left(range(1, 5), played, minutes=10.0, jobs=60) == [1, 2, 4]


def test_table_has_a_row_for_each_night() -> None:
    _, _, first, second = table([NIGHT, replace(NIGHT, seed=1, broken=("a", "b"))])
    assert first == "| 1 | 10, 60 | 120 of 150 | 40 | 900 | 7 | 2 |"
    assert second == "| 3 | 10, 60 | 120 of 150 | 40 | 900 | 7 | none |"
