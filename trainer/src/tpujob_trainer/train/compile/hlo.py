"""The text of a compiled program: its computations, and how often each line runs.

The condition of a loop determines how often its body runs. The compiler writes `counter < constant` for loops of `scan`
and for loops that it makes of an exchange, which it may unroll: the counter then grows by more than one.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply|called_computations)=\{?%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_CONSTANT = re.compile(r"%?([\w.\-]+) = [su]32\[\]\S* constant\((\d+)\)")
_BELOW = re.compile(r"ROOT .* compare\(%?([\w.\-]+), %?([\w.\-]+)\), direction=LT")
_ROOT = re.compile(r"ROOT .* tuple\((.*?)\)(?:,|$)", re.MULTILINE)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_BITS = re.compile(r"\d+")
_NUMBERED = re.compile(r"/\*index=\d+\*/")
"""Precedes every fifth element of a tuple."""


@dataclass(frozen=True)
class Run:
    """A line of the program, and how often it runs."""

    line: str
    times: int
    computation: str
    is_in_loop: bool


class Program:
    """An optimised program, parsed from its text."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[str]] = {}
        self.entry = ""
        """The computation that the program starts with."""
        current: list[str] = []
        for line in _NUMBERED.sub("", text).splitlines():
            if header := _HEADER.match(line):
                current = self.computations[header.group(2)] = []
                self.entry = header.group(2) if header.group(1) else self.entry
            else:
                current.append(line)

    def runs(self) -> Iterator[Run]:
        """Every line that runs; a line of a computation with several callers, once for each of them."""
        return self._runs(self.entry, 1, is_in_loop=False)

    def _runs(self, name: str, times: int, *, is_in_loop: bool) -> Iterator[Run]:
        for line in self.computations.get(name, []):
            yield Run(line, times, name, is_in_loop)
            inner = times * self.trips(line)
            for each in called_computations(line):
                yield from self._runs(each, inner, is_in_loop=is_in_loop or " while(" in line)

    def inside(self, line: str) -> Iterator[Run]:
        """A line, and the lines of the computations that it calls, each once."""
        yield Run(line, 1, "", is_in_loop=False)
        for each in called_computations(line):
            yield from self._runs(each, 1, is_in_loop=False)

    def loop_body(self, line: str) -> str:
        """The computation that a loop repeats; empty: the line is no loop."""
        loop = _LOOP.search(line)
        return loop.group(2) if loop else ""

    def trips(self, line: str) -> int:
        """How often a loop's body runs; 1 for all other lines, and for loops without a constant end."""
        if not (loop := _LOOP.search(line)):
            return 1
        if known := _TRIPS.search(line):
            return int(known.group(1))
        condition = "\n".join(self.computations.get(loop.group(1), []))
        if not (end := _BELOW.search(condition)):
            return 1
        limit = int(dict(_CONSTANT.findall(condition)).get(end.group(2), 1))
        return math.ceil(limit / self._growth(condition, end.group(1), loop.group(2)))

    def _growth(self, condition: str, counter: str, body: str) -> int:
        """The increment of the counter in one run of the body; 1 if it is written in another way."""
        text = "\n".join(self.computations.get(body, []))
        index = re.search(rf"%?{re.escape(counter)} = .*index=(\d+)", condition)
        if not index or not (root := _ROOT.search(text)):
            return 1
        parts = root.group(1).split(",")
        name = parts[int(index.group(1))].split()[-1].lstrip("%") if int(index.group(1)) < len(parts) else ""
        added = re.search(rf"%?{re.escape(name)} = \S+ add\(%?([\w.\-]+), %?([\w.\-]+)\)", text)
        constants = dict(_CONSTANT.findall(text))
        return next((int(constants[each]) for each in added.groups() if each in constants), 1) if added else 1


def called_computations(line: str) -> list[str]:
    """The computations that a line names: of a fusion, a call, a loop or a branch."""
    called = [*_CALLED.findall(line)]
    if branches := _BRANCHES.search(line):
        called += [branch.strip(" %") for branch in branches.group(1).split(",")]
    return called


def array_bytes(shape: str) -> list[int]:
    """Bytes of each array that a shape names: one, or those of a tuple."""
    sizes = []
    for kind, dims in _ARRAY.findall(shape):
        bits = _BITS.search(kind)
        width = 1 if kind == "pred" else int(bits.group()) // 8 if bits else 4
        sizes.append(width * math.prod(int(dim) for dim in dims.split(",") if dim))
    return sizes
