"""Each room says what it is for, and what import-linter is told of the floors is true to the folders."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "contract/src/tpujob_contract",
    "launcher/src/tpujob_launcher",
    "resource/src/tpujob_resource",
    "operator/src/tpujob_operator",
    "trainer/src/tpujob_trainer",
    "sdk/src/tpujob_sdk",
    "cli/src/tpujob",
)
MOST_SIDE_BY_SIDE = 24
"""Modules of one room; beyond that a room is two."""


def rooms() -> list[Path]:
    """Every package below the roots, as a folder."""
    found = (init.parent for package in PACKAGES for init in (ROOT / package).rglob("__init__.py"))
    return sorted(folder for folder in found if str(folder.relative_to(ROOT)) not in PACKAGES)


def modules(room: Path) -> set[str]:
    files = {file.stem for file in room.glob("*.py") if not file.stem.startswith("__")}
    return files | {f"{init.parent.name}/" for init in room.glob("*/__init__.py")}


@pytest.mark.parametrize("room", rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_room_says_what_it_is_for(room: Path) -> None:
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert docstring.partition("\n")[0].endswith("."), "the first line is one sentence: what the room is for"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_room_is_not_crowded(room: Path) -> None:
    assert len(modules(room)) <= MOST_SIDE_BY_SIDE
