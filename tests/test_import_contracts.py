"""Each import-linter contract of pyproject.toml fails when an import breaks it, whichever of its clauses it breaks."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[1]
SETTINGS = read_configuration(str(ROOT / "pyproject.toml"))
SESSION: dict[str, Any] = SETTINGS["session_options"]
CONTRACTS: list[dict[str, Any]] = SETTINGS["contracts_options"]
CLASSES: dict[str, type[Contract]] = {
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}
Mistake = Callable[[ImportGraph], object]


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return build_graph(
        *SESSION["root_packages"], include_external_packages=True, cache_dir=str(ROOT / ".cache" / "import-linter")
    )


def is_kept(options: dict[str, Any], graph: ImportGraph) -> bool:
    contract = CLASSES[options["type"]](name=options["name"], session_options=SESSION, contract_options=options)
    return contract.check(deepcopy(graph), verbose=False).kept


def mistakes(options: dict[str, Any]) -> Iterator[tuple[str, Mistake]]:
    """A mistake for each clause of a contract: what is done, and how it changes the graph."""
    match options["type"]:
        case "forbidden":
            sources, forbidden = options["source_modules"], options["forbidden_modules"]
            for source in sources:
                yield importing(source, forbidden[0])
            for module in forbidden[1:]:
                yield importing(sources[0], module)
        case "layers":
            for container in options.get("containers", [""]):
                yield from mistakes_between_floors(options, f"{container}." if container else "")
        case "acyclic_siblings":
            for ancestor in options["ancestors"]:
                yield f"a circle in {ancestor}", partial(close_a_circle, ancestor)


def mistakes_between_floors(options: dict[str, Any], prefix: str) -> Iterator[tuple[str, Mistake]]:
    floors = [floor.split(" | ") for floor in options["layers"]]
    for above, below in pairwise(floors):
        yield importing(prefix + below[0], prefix + above[0])
    for floor in floors:
        for importer, imported in zip(floor, floor[1:] + floor[:1], strict=True):
            if importer != imported:
                yield importing(prefix + importer, prefix + imported)
    if options.get("exhaustive"):
        yield f"a new room {prefix}gazebo", lambda graph: graph.add_module(f"{prefix}gazebo")


def importing(importer: str, imported: str) -> tuple[str, Mistake]:
    def change(graph: ImportGraph) -> None:
        if imported not in graph.modules:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=importer, imported=imported)

    return f"{importer} imports {imported}", change


def close_a_circle(ancestor: str, graph: ImportGraph) -> None:
    """Adds two modules that import each other, in a room of this package."""
    room = f"{ancestor}.gazebo"
    for module in (room, f"{room}.a", f"{room}.b"):
        graph.add_module(module)
    graph.add_import(importer=f"{room}.a", imported=f"{room}.b")
    graph.add_import(importer=f"{room}.b", imported=f"{room}.a")


CASES = [
    pytest.param(options, change, id=f"{options['name']}: {what}")
    for options in CONTRACTS
    for what, change in mistakes(options)
]


@pytest.mark.parametrize("options", CONTRACTS, ids=lambda options: options["name"])
def test_contract_is_kept(options: dict[str, Any], graph: ImportGraph) -> None:
    assert is_kept(options, graph)


@pytest.mark.parametrize(("options", "change"), CASES)
def test_contract_fails_when_it_is_broken(options: dict[str, Any], change: Mistake, graph: ImportGraph) -> None:
    broken = deepcopy(graph)
    change(broken)
    assert not is_kept(options, broken)
