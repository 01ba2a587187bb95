"""The page that newcomers enter by names files and rooms that exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def test_every_path_exists() -> None:
    paths = set(
        re.findall(
            r"`((?:contract|launcher|resource|operator|trainer|sdk|cli|tests|tools|docs)/[\w./-]*)`", PAGE.read_text()
        )
    )
    assert paths, "no path was found in the page"
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_room_is_on_the_page() -> None:
    """The rooms that import-linter holds, but for single modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = PAGE.read_text()
    missing = [
        room
        for contract in settings["tool"]["importlinter"]["contracts"]
        for container in contract.get("containers", [])
        if "." not in container
        for floor in contract["layers"]
        for room in floor.split(" | ")
        if next(ROOT.glob(f"*/src/{container}/{room}/__init__.py"), None) and f"`{room}/`" not in text
    ]
    assert missing == []


def test_changes_that_were_tried_are_small() -> None:
    """The number in a row is that of its files; fifteen take four at most, and one more is said to take six."""
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    listed = [len(re.findall(r"`[^`]+`", files.partition(": ")[0])) for _, files in rows]
    assert [int(number) for number, _ in rows] == listed
    assert len(listed) == 16
    assert sum(number <= 2 for number in listed) >= 8
    assert sum(number <= 4 for number in listed) == 15
