"""Expands names with braces for the shards of a data set: `train-{000000..000999}.tar`, `{en,de}/*.parquet`.

As in bash and webdataset, without nesting: numbers with their leading zeros, no letters; several braces multiply.
"""

import contextlib
import itertools
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from tpujob_trainer.storage.remote import request

type Info = dict[str, Any]
"""The entry of one file in a listing of fsspec."""

MOST_NAMES = 1_000_000
_BRACES = re.compile(r"\{(?:([0-9]{1,18})\.\.([0-9]{1,18})|([^{},/]*(?:,[^{},/]*)+))\}")


def has_range(location: str) -> bool:
    """Whether a location has braces that stand for several names."""
    return _BRACES.search(location) is not None


def as_pattern(location: str) -> str:
    """A pattern that all names of a location match."""
    return _BRACES.sub("*", location)


def count(location: str) -> int:
    """How many names a location stands for."""
    return prod(
        listed.count(",") + 1 if listed is not None else abs(int(last) - int(first)) + 1
        for first, last, listed in (braces.groups() for braces in _BRACES.finditer(location))
    )


def names(location: str) -> list[str]:
    """The names that a location stands for, in the order of its braces."""
    fixed, choices, at = [], [], 0
    for braces in _BRACES.finditer(location):
        fixed.append(location[at : braces.start()])
        choices.append(_choices(braces))
        at = braces.end()
    return [
        "".join(itertools.chain.from_iterable(zip(fixed, chosen, strict=True))) + location[at:]
        for chosen in itertools.product(*choices)
    ]


def find(filesystem: Any, location: str) -> tuple[list[Info], list[str]]:
    """What has these names or is in folders with these names, without folders, and the names that do not exist."""
    wanted = list(dict.fromkeys(names(location)))
    if any(set(name) & set("*?[") for name in wanted):
        matched = {
            name: request(name, lambda name=name: filesystem.glob(name, detail=True))  # type: ignore[misc]
            for name in wanted
        }
        found = {info["name"]: info for listed in matched.values() for info in listed.values()}
        files = [info for info in found.values() if info["type"] != "directory"]
        return files, [name for name, listed in matched.items() if not listed]
    there = _there(filesystem, location, wanted)
    files = []
    for name in wanted:
        if name not in there:
            continue
        if there[name]["type"] != "directory":
            files.append(there[name])
            continue
        below = request(name, lambda name=name: filesystem.find(name, detail=True))  # type: ignore[misc]
        files += [info for path, info in below.items() if not re.search(r"/[._]", path.removeprefix(name))]
    return files, [name for name in wanted if name not in there]


def _there(filesystem: Any, location: str, wanted: Sequence[str]) -> dict[str, Info]:
    """The entries of the names that exist, by one listing; web servers, which may have none, are asked for each."""
    if not str(filesystem.unstrip_protocol(location)).startswith("http"):
        listed: dict[str, Info] = request(location, lambda: filesystem.glob(as_pattern(location), detail=True))
        return listed
    there = {}
    for name in wanted:
        with contextlib.suppress(FileNotFoundError):
            there[name] = request(name, lambda name=name: filesystem.info(name))  # type: ignore[misc]
    return there


def _numbers(first: str, last: str) -> range:
    begin, end = int(first), int(last)
    return range(begin, end + 1) if begin <= end else range(begin, end - 1, -1)


def _choices(braces: re.Match[str]) -> list[str]:
    first, last, listed = braces.groups()
    if listed is not None:
        return listed.split(",")
    has_zeros = any(bound.startswith("0") and len(bound) > 1 for bound in (first, last))
    digits = max(len(first), len(last)) if has_zeros else 0
    return [f"{number:0{digits}d}" for number in _numbers(first, last)]
