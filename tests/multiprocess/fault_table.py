"""The cells of a table of faults, played a few at a time, and the table printed."""

import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest


class Keyed(Protocol):
    """One place of a table."""

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""


def play[Cell: Keyed, Found](
    cells: Iterable[Cell], folder: Path, play_one: Callable[[Cell, Path], Found], *, at_once: int
) -> dict[Cell, concurrent.futures.Future[Found]]:
    """What becomes of the cells, by cell; each has a folder of its own."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return {cell: pool.submit(play_one, cell, folder / cell.key) for cell in cells}


def asked_for[Cell: Keyed](table: Sequence[Cell], request: pytest.FixtureRequest) -> list[Cell]:
    """The cells of the table whose tests are in this session."""
    items: Iterable[Any] = request.session.items
    asked = {item.callspec.params["cell"] for item in items if "table" in item.fixturenames}
    return [cell for cell in table if cell in asked]


def show[Found](
    found: Mapping[Any, concurrent.futures.Future[Found]],
    markdown: Callable[[list[Found]], str],
    request: pytest.FixtureRequest,
) -> None:
    """Prints the table of the cells that came to an end."""
    terminal: Any = request.config.pluginmanager.getplugin("terminalreporter")
    terminal.write_line("")
    terminal.write_line(markdown(ended(found)))


def ended[Found](found: Mapping[Any, concurrent.futures.Future[Found]]) -> list[Found]:
    """What was found in the cells that came to an end."""
    return [each.result() for each in found.values() if each.exception() is None]
