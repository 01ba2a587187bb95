"""The table of what one input can do has a cell for each kind at each door, and names tests that exist."""

import re
from pathlib import Path

from tests.fuzz.test_fuzz import TARGETS
from tools.reference.inputs import FUZZ, KINDS, doors

TESTS = Path(__file__).parents[1]
NAMED = sorted({test for cells in doors().values() for cell in cells for test in cell.tests})


def test_every_kind_has_one_cell() -> None:
    for door, cells in doors().items():
        assert sorted(kind for cell in cells for kind in cell.kinds) == sorted(KINDS), door


def test_every_named_test_is_collected() -> None:
    for test in (each for each in NAMED if not each.startswith(FUZZ)):
        file, name = re.fullmatch(r"([\w/]*\btest_\w+\.py)::(test_\w+)", test).groups()  # type: ignore[union-attr]
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), f"{test} does not exist"


def test_fuzzers_are_those_of_the_page() -> None:
    """So a new target gets a cell, and a cell names no target that is gone."""
    named = {test.removeprefix(FUZZ) for test in NAMED if test.startswith(FUZZ)}
    assert named == {target.name for target in TARGETS}
