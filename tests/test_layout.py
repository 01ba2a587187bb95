"""Each room says what it is for, none is crowded, and roots hold nothing that a room could import."""

import ast
import tomllib
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
WITHOUT_ROOMS = {"contract/src/tpujob_contract", "sdk/src/tpujob_sdk"}
"""Packages so small that each module is a room of its own."""
NAMES_OF_PROGRAMS = {"repository"}
"""Modules that JobSets of earlier releases start by `python -m`: each only runs the program, where that lives now."""
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


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - WITHOUT_ROOMS))
def test_root_holds_the_start_alone(package: str) -> None:
    """What rooms share is a room at the bottom, so that no root is both above and below the rooms."""
    in_root = {file.stem for file in (ROOT / package).glob("*.py")}
    assert in_root - {"__init__", "__main__", "main"} - NAMES_OF_PROGRAMS == set()


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - WITHOUT_ROOMS))
def test_root_package_imports_none_of_its_rooms(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    assert [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)] == []


def test_every_folder_of_tests_is_of_one_kind() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    tested = {file.relative_to(ROOT / "tests").parts[0] for file in (ROOT / "tests").rglob("test_*.py")}
    folders = {name for name in tested if not name.endswith(".py")}
    assert folders == {Path(path).name for path in options["testpaths"]} - {"test_*.py"} | {"scenes", "e2e"}
