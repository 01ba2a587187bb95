"""Many nights are played over days: what was played is known, and nothing is played twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.nights.results import (
    BEGIN,
    END,
    FILE,
    README,
    Result,
    append,
    left,
    processor_seconds,
    read,
    table,
    versions,
    with_table,
)

NIGHT = Result(
    seed=3,
    minutes=10.0,
    jobs=60,
    blows=150,
    fell=120,
    failed_attempts=40,
    writes=3900,
    load=7.4,
    processor_seconds=612.5,
    code="0123abcd",
    versions={"Kubernetes": "v1.2.3", "etcd": "v3.4.5"},
)


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
    lines = list(table([NIGHT, replace(NIGHT, seed=1, code="", broken=("a", "b"))]))
    assert lines[0] == "2 nights: 240 of 300 blows fell, 80 attempts failed, 7,800 writes; 2 violations."
    assert lines[1] == "Kubernetes 1.2.3, etcd 3.4.5."
    assert lines[-2] == "| 1 | 10, 60 | 120 of 150 | 40 | 3,900 | 612 s | 7 |  | 2 |"
    assert lines[-1] == "| 3 | 10, 60 | 120 of 150 | 40 | 3,900 | 612 s | 7 | 0123abcd | none |"


def test_table_of_no_nights_says_so() -> None:
    assert next(table([])) == "0 nights: 0 of 0 blows fell, 0 attempts failed, 0 writes; no violations."


def test_benchmarks_show_the_results_that_are_kept() -> None:
    page = README.read_text()
    assert page == with_table(page, read(FILE)), "python -m tests.nights.page"


def test_table_replaces_the_one_before() -> None:
    page = with_table(f"before\n{BEGIN}\nold\n{END}\nafter\n", [NIGHT])
    assert page.startswith(f"before\n{BEGIN}\n")
    assert page.endswith(f"\n{END}\nafter\n")
    assert "old" not in page
    assert with_table(page, [NIGHT]) == page


def test_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        with_table("nothing", [NIGHT])


def test_night_knows_the_programs_it_is_played_with() -> None:
    found = versions()
    assert set(found) == {"Kubernetes", "etcd", "JobSet", "Kueue"}
    assert all(version.startswith("v") for version in found.values())


def test_processor_time_only_grows() -> None:
    assert 0 < processor_seconds() <= processor_seconds()
