"""A short round of `make random-faults`, and the pages that fault tables are written into."""

import random

import pytest

from benchmarks.random_faults import Round
from tests.multiprocess import program_faults
from tests.multiprocess.program_faults import Cell, Seen

pytestmark = pytest.mark.processes


def test_what_must_hold_does_after_each_of_two_faults(tmp_path, monkeypatch):
    monkeypatch.setattr(Round, "faults", ("kill -9",))
    monkeypatch.setattr(Round, "most_faults", 2)
    monkeypatch.setattr(Round, "moment_seconds", 1.0)
    chance = random.Random(1)  # noqa: S311
    played = Round("plain JAX", 2, in_place=True, chance=chance, folder=tmp_path)
    assert [each.fault for each in played.play(float("inf"))] == ["kill -9"] * 2, played.explanation


def test_a_result_takes_the_place_of_the_one_before(tmp_path, monkeypatch):
    page = tmp_path / "faults.md"
    page.write_text("a\n<!-- b -->\n\nold\n\n<!-- c -->\nd\n")
    monkeypatch.setattr(program_faults, "PAGE", page)
    program_faults.write_between("<!-- b -->", "<!-- c -->", "new")
    assert page.read_text() == "a\n<!-- b -->\n\nnew\n\n<!-- c -->\nd\n"


def test_cells_that_were_not_played_stay_in_the_page():
    seen = Seen(Cell("trainer", "kill -9", 1), 0.4, None, 2.0, 137, {"message": "process 1 (w-1): x"}, "", False, ())
    page = f"a\n{program_faults.TABLE_BEGIN}\n{program_faults.TABLE_END}\nb"
    again = Seen(Cell("trainer", "kill -9", 0, True), 0.4, 3.0, 9.0, 0, {}, "", False, ())
    found = program_faults.updated(program_faults.updated(page, [seen]), [again])
    assert "| trainer | kill -9 | not run | 137, process 1; 0 s, 2 s | 0 s; again after 3 s | not run |" in found
    assert (found[:2], found[-2:]) == ("a\n", "\nb")
