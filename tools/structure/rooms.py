"""Rooms and the imports between them, from the graph that import-linter uses.

A room is a package directly below a distribution's root package. The modules directly in the root (`main`, `__main__`,
the modules of the contract) are one room too, named as the root package.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import grimp

CACHE = ".cache/structure"


@dataclass(frozen=True, order=True)
class Arrow:
    """Some module of `importer` imports some module of `imported`."""

    importer: str
    imported: str

    @property
    def kind(self) -> str:
        """`across` distributions, from or to a `root`, or between `sibling` rooms of one distribution."""
        if self.importer.partition(".")[0] != self.imported.partition(".")[0]:
            return "across"
        return "sibling" if "." in self.importer and "." in self.imported else "root"

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


def arrows(packages: Iterable[str], cache_dir: str | None = CACHE) -> list[Arrow]:
    """The imports between different rooms of these packages, sorted."""
    packages = list(packages)
    graph = grimp.build_graph(*packages, cache_dir=cache_dir)
    folders = {folder for package in packages for folder in rooms(package)}
    pairs = {
        Arrow(room(importer, folders), room(imported, folders))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return sorted(pair for pair in pairs if pair.importer != pair.imported)


def rooms(package: str) -> set[str]:
    """The packages directly below a root package, including those with only an `__init__`."""
    found = find_spec(package)
    places = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    return {f"{package}.{init.parent.name}" for place in places for init in place.glob("*/__init__.py")}


def room(module: str, folders: set[str]) -> str:
    """The room of a module: one of `folders`, or its root package."""
    candidate = ".".join(module.split(".")[:2])
    return candidate if candidate in folders else module.partition(".")[0]


def cycles(between: Iterable[Arrow]) -> list[list[str]]:
    """The import cycles of rooms, each as a closed path; empty if there are none."""
    imports: dict[str, set[str]] = {}
    for arrow in between:
        imports.setdefault(arrow.importer, set()).add(arrow.imported)
    found = []
    while way := a_cycle(imports):
        found.append(way)
        # TopologicalSorter lists a cycle against the direction of the arrows.
        imports[way[1]].discard(way[0])
    return found


def a_cycle(imports: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
