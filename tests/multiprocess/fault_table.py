"""The cells of a table of faults, played a few at a time, and the table printed."""

import concurrent.futures
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from _pytest.mark.structures import ParameterSet


class Keyed(Protocol):
    """One place of a table."""

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""


def parameters[Cell: Keyed](telling: Iterable[Cell], table: Iterable[Cell], *, seconds: int) -> list[ParameterSet]:
    """The cells that every run plays, and those of `make faults`, which may all take so many seconds together."""
    marks = (pytest.mark.faults, pytest.mark.timeout(seconds))
    return [
        *(pytest.param(cell, id=cell.key) for cell in telling),
        *(pytest.param(cell, id=f"table-{cell.key}", marks=marks) for cell in table),
    ]


def play[Cell: Keyed, Found](
    request: pytest.FixtureRequest,
    play_one: Callable[[Cell, Path], Found],
    *,
    at_once: int,
    show: Callable[[list[Found]], str | None],
    can_play: Callable[[Cell], bool] = lambda cell: True,
) -> dict[Cell, concurrent.futures.Future[Found]]:
    """What becomes of the cells that this session's tests of a module ask for.

    Args:
        request: Of a fixture of the module.
        play_one: Plays a cell in a folder of its own.
        at_once: So many are played at the same time.
        show: Is told of what was found where the whole table is asked for; what it returns is printed.
        can_play: Whether this machine has what a cell needs.
    """
    items: Iterable[Any] = [item for item in request.session.items if item.path == request.path]
    asked = dict.fromkeys(item.callspec.params["cell"] for item in items if "cell" in item.fixturenames)
    folder = request.getfixturevalue("tmp_path_factory").mktemp("cells")
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        found = {cell: pool.submit(play_one, cell, folder / cell.key) for cell in filter(can_play, asked)}
    ended = [each.result() for each in found.values() if each.exception() is None]
    if any(item.get_closest_marker("faults") for item in items) and (text := show(ended)):
        request.config.pluginmanager.getplugin("terminalreporter").write_line(f"\n{text}")
    return found


def require_well(found: Mapping[Any, concurrent.futures.Future[Any]], cell: Keyed, otherwise: str = "") -> None:
    """Fails where a cell has problems; skips one that was not played."""
    if cell not in found:
        pytest.skip(otherwise)
    outcome = found[cell].result()
    assert not outcome.problems(), outcome.explanation
