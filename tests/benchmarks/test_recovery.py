"""The page of recoveries: what has a row, what a sentence; and which lines of a log are the start after a fault."""

import json
import re

import pytest

from benchmarks.recovery.__main__ import RESULTS
from benchmarks.recovery.cells import FAULTS, PLACES, PROGRAMS, Cell, why_not
from benchmarks.recovery.faults import happened
from benchmarks.recovery.page import FILE, page
from benchmarks.recovery.timing import Recovery, recovery

DESK, TWO, MANY = PLACES
FOUND = {"first_start": 3.0, "until_start": 1.25, "own": 2.5}


def section(place: str, *cells: Cell) -> str:
    """Of the page where those cells are measured."""
    text = page({cell.key: FOUND for cell in cells})
    return text.partition(f"## {place[0].upper()}{place[1:]}\n")[2].partition("\n## ")[0].strip()


@pytest.mark.parametrize(
    ("place", "cells", "rows", "sentences"),
    [
        (DESK, [], [], ["Not measured yet: exception, kill -9, freeze.", "No pods: deleted pod, lost node."]),
        (TWO, [("trainer", "freeze", True)], ["| trainer | freeze | 3.8 = 1.2 + 2.5 | - | 3.0 |"], []),
        (
            TWO,
            [("MaxText", "deleted pod", False), ("trainer", "exception", True), ("trainer", "exception", False)],
            [
                "| trainer | exception | 3.8 = 1.2 + 2.5 | 3.8 = 1.2 + 2.5 | 3.0 |",
                "| MaxText | deleted pod | - | 3.8 = 1.2 + 2.5 | 3.0 |",
            ],
            ["deleted pod (trainer, plain JAX)."],
        ),
        (
            MANY,
            [("plain JAX", "kill -9", True)],
            ["| plain JAX | kill -9 |"],
            ["room for one pod: lost node."],
        ),
    ],
    ids=["nothing measured", "in place alone", "anew alone and both", "left out"],
)
def test_what_is_measured_has_a_row_and_the_rest_a_sentence(
    place: str, cells: list[tuple[str, str, bool]], rows: list[str], sentences: list[str]
) -> None:
    text = section(place, *(Cell(place, *cell) for cell in cells))
    found = [line for line in text.splitlines() if line.startswith(("| ", "|-"))][2:]
    assert [line[: len(row)] for line, row in zip(found, rows, strict=True)] == rows
    for sentence in sentences:
        assert sentence in text


def test_every_cell_that_can_be_measured_has_its_place() -> None:
    cells = [
        Cell(place, program, fault, in_place)
        for place in PLACES
        for program in PROGRAMS
        for fault in FAULTS
        for in_place in (True, False)
    ]
    measured = [cell for cell in cells if not why_not(cell)]
    text = page({cell.key: FOUND for cell in measured})
    assert text.count("3.8 = 1.2 + 2.5") == len(measured)
    assert "not measured yet" not in text.lower()


def test_the_page_is_of_what_was_measured() -> None:
    assert FILE.read_text() == page(json.loads(RESULTS.read_text()))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], 10.0),
        (["step 5", "fault at 11.250"], 11.25),
        (["fault at 11.250", "fault at 11.500", "fault at noon"], 11.5),
    ],
    ids=["at once", "an exception", "the last memory"],
)
def test_a_fault_counts_from_when_it_happened(lines: list[str], expected: float) -> None:
    assert happened(lines, 10.0) == expected


BEGIN, AGAIN, STEP = "tpujob launch: process 0 of 2 of job", "tpujob launch: attempt 1 in the same containers", "step 5"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(1.0, BEGIN), (2.0, STEP), (11.0, STEP)], None),
        ([(1.0, BEGIN), (2.0, STEP), (11.0, STEP), (12.0, AGAIN)], None),
        ([(1.0, BEGIN), (2.0, STEP), (11.0, STEP), (12.0, AGAIN), (15.0, STEP), (16.0, STEP)], Recovery(2.0, 3.0)),
        ([(12.0, BEGIN), (13.0, AGAIN), (15.0, STEP)], Recovery(3.0, 2.0)),
    ],
    ids=["no start", "no step", "a step after a start", "the last start"],
)
def test_recovery_ends_with_a_step_after_a_new_start(lines: list[tuple[float, str]], expected: Recovery | None) -> None:
    assert recovery(lines, re.compile("step"), 10.0) == expected
