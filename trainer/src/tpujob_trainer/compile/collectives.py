"""Exchanges between devices in a compiled program: kinds, axes, bytes.

Read from the text of the optimised program. A loop's body counts as often as its condition says: the compiler writes it
as `counter < constant` for the loops of `scan` and for those that it makes of an exchange itself. What it has made
asynchronous in several pieces is one exchange, known by its channel.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_OPERATION = re.compile(rf"= (\(?[^=]*?) ({'|'.join(KINDS)})(-start)?\(")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply|called_computations)=\{?%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONDITION = re.compile(r" while\(.*condition=%?([\w.\-]+)")
_CONSTANT = re.compile(r"%?([\w.\-]+) = [su]32\[\]\S* constant\((\d+)\)")
_BELOW = re.compile(r"ROOT .* compare\([^,]*, %?([\w.\-]+)\), direction=LT")
_PIECE = '"async_collective_fusion_config"'
"""In the settings of each piece of an exchange that the compiler runs beside arithmetic."""
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")
_BITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Exchange:
    """All exchanges of one kind over the same axes, in one run of the program."""

    kind: str
    axes: str
    """Names of mesh axes of more than one device; empty where the program does not name them."""
    is_asynchronous: bool
    count: int
    bytes: int
    """Results of all of them, on one device."""


def exchanges(program: str) -> list[Exchange]:
    """Every exchange of the program's text, largest first."""
    computations, entry = _computations(program)
    found: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[str] = set()
    for line, times, name in _runs(computations, entry, 1):
        match = _OPERATION.search(line)
        if not match:
            continue
        channel = re.search(r"channel_id=(\d+)", line)
        key = channel.group(1) if channel else f"{name}/{line[:80]}"
        if key in seen:
            continue
        seen.add(key)
        is_asynchronous = bool(match.group(3)) or _PIECE in line
        entry_ = found[match.group(2), _axes(line), is_asynchronous]
        entry_[0] += times
        entry_[1] += times * _bytes(match.group(1), is_started=bool(match.group(3)))
    made = [Exchange(kind, axes, is_async, *numbers) for (kind, axes, is_async), numbers in found.items()]
    return sorted(made, key=lambda each: -each.bytes)


def _computations(program: str) -> tuple[dict[str, list[str]], str]:
    computations: dict[str, list[str]] = {}
    current: list[str] = []
    entry = ""
    for line in program.splitlines():
        if header := _HEADER.match(line):
            current = computations[header.group(2)] = []
            entry = header.group(2) if header.group(1) else entry
        else:
            current.append(line)
    return computations, entry


def _runs(computations: dict[str, list[str]], name: str, times: int) -> Iterator[tuple[str, int, str]]:
    """Every line that is run, how often, and in which computation."""
    for line in computations.get(name, []):
        yield line, times, name
        inner = times * _trips(computations, line)
        called = [*_CALLED.findall(line)]
        if branches := _BRANCHES.search(line):
            called += [branch.strip(" %") for branch in branches.group(1).split(",")]
        for each in called:
            yield from _runs(computations, each, inner)


def _trips(computations: dict[str, list[str]], line: str) -> int:
    """How often a loop's body runs; 1 for all other lines, and for loops whose end is no constant."""
    if not (loop := _CONDITION.search(line)):
        return 1
    if known := _TRIPS.search(line):
        return int(known.group(1))
    condition = "\n".join(computations.get(loop.group(1), []))
    end = _BELOW.search(condition)
    return int(dict(_CONSTANT.findall(condition)).get(end.group(1), 1)) if end else 1


def _axes(line: str) -> str:
    if not (match := _AXES.search(line)):
        return ""
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", match.group(1)))
    return ",".join(axis for axis in re.findall(r"'(\w+)'", match.group(2)) if sizes.get(axis) != "1")


def _bytes(shape: str, *, is_started: bool) -> int:
    sizes = []
    for kind, dims in _ARRAY.findall(shape):
        bits = _BITS.search(kind)
        width = 1 if kind == "pred" else int(bits.group()) // 8 if bits else 4
        sizes.append(width * math.prod(int(dim) for dim in dims.split(",") if dim))
    # What is started returns its argument, its result and semaphores.
    return max(sizes, default=0) if is_started else sum(sizes)
