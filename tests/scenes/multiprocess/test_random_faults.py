"""A short round of `make random-faults`, and the pages that fault tables are written into."""

import random

import pytest

from benchmarks import random_faults
from benchmarks.random_faults import Round, Struck, table
from tests.multiprocess import program_faults
from tests.multiprocess.program_faults import Cell, Seen

pytestmark = pytest.mark.processes


def test_what_must_hold_does_after_each_of_two_faults(tmp_path, monkeypatch):
    monkeypatch.setattr(random_faults, "FAULTS", ("kill -9",))
    monkeypatch.setattr(random_faults, "FAULTS_OF_ROUND", 2)
    monkeypatch.setattr(random_faults, "MOMENT_SECONDS", 1.0)
    played = Round("plain JAX", 2, 1000, random.Random(1), tmp_path / "round")  # noqa: S311
    struck = played.play(float("inf"))
    assert [each.fault for each in struck] == ["kill -9"] * 2, played.explain()


def test_a_row_says_what_faults_cost():
    struck = [Struck("trainer", "kill -9", True, 9.0, 3), Struck("trainer", "Ctrl-C", False, 20.0, 0)]
    row = "| trainer | 2 | 1 | 0 | 1 | 20 s, at most 20 s | at most 3 |"
    assert table({"trainer": struck, "MaxText": []}).splitlines()[2:] == [row]


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
