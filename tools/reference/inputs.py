"""The page of what one input can do, from tests/fuzz/inputs.toml: each door, and which test shows what happens."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.reference.text import HEADER, table

TABLE = Path("tests/fuzz/inputs.toml")
KINDS = ("too long", "too deep", "too many", "too slow", "half", "wrong encoding", "wrong owner", "gone")
FUZZ = "fuzz: "


class Cell(NamedTuple):
    """What becomes of some kinds of input at one door."""

    kinds: tuple[str, ...]
    words: str
    """What happens, or why there is no such input; empty where nobody tried."""
    tests: tuple[str, ...]
    """None: there is no such input, or nobody tried."""


def doors() -> dict[str, list[Cell]]:
    """The cells of each door."""
    return {name: [_cell(*row) for row in rows] for name, rows in tomllib.loads(TABLE.read_text()).items()}


def _cell(kinds: str, words: str = "", *tests: str) -> Cell:
    return Cell(tuple(kinds.split(", ")), words, tests)


def page() -> str:
    """The page as Markdown."""
    found = doors()
    cells = [cell for each in found.values() for cell in each]
    shown = sum(len(cell.kinds) for cell in cells if cell.tests)
    untried = sum(len(cell.kinds) for cell in cells if not cell.words)
    sections = (
        f"## {name}\n\n{table(('input', 'what happens', 'shown by'), list(_rows(found[name])))}" for name in found
    )
    return (
        f"{HEADER}# What one input can do\n\n"
        "Each door by which something comes in, and what happens if it is too long, nested too deeply, too many, too "
        "slow, half there, in the wrong encoding, somebody else's, or gone. A dash: there is no such input, and why. "
        "Tests are below `tests/`; *fuzz* is a target of `make fuzz`.\n\n"
        f"{len(found)} doors: {shown} combinations that a test shows, "
        f"{len(found) * len(KINDS) - shown - untried} that do not exist, {untried} that nobody has tried.\n\n"
        + "\n".join(sections)
    )


def _rows(cells: list[Cell]) -> Iterator[tuple[str, str, str]]:
    for cell in cells:
        tests = ", ".join(f"*{test}*" if test.startswith(FUZZ) else f"`{test}`" for test in cell.tests)
        words = cell.words if cell.tests else f"– {cell.words}" if cell.words else "not tried"
        yield ", ".join(cell.kinds), words, tests
