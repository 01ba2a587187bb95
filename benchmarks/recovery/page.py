"""docs/reference/recovery.md."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from benchmarks.recovery.cells import FAULTS, PLACES, PROGRAMS, Cell, why_not
from benchmarks.recovery.programs import ROOT

FILE = ROOT / "docs" / "reference" / "recovery.md"
HEAD = """<!-- Written by `make bench-recovery`; do not edit. -->
# Seconds from a fault to the next step

One fault in one process of a tiny job, and the time until process 0 finishes a step of the next attempt, with
[`inPlaceRestarts`](../options/pods.md) and without. Each cell is one measurement, in two summands:

- until the program of process 0 starts again: what the launchers, or JobSet and the operator, cost;
- from there to its step: imports, the meeting, restore, compilation. This is the program's own, and grows with the
  processes that share the cores. A first start, from the launcher's first line, is in the last column.

Under `tpujob run`, *anew* is the command that ends and is typed again at once. An OOM kill has the second or so in
which the program fills its memory.

Measured on 2 cores that other work kept at a load of 10 to 35, which differed from cell to cell: compare the first
summands, and totals with the first start beside them, not with each other.

"""


def write(results: Mapping[str, Mapping[str, float]]) -> None:
    """Writes the page of what was measured."""
    parts = [HEAD.rstrip()]
    for place in PLACES:
        parts.append(f"## {place[0].upper()}{place[1:]}")
        lines = ["| Program | Fault | in place, s | anew, s | first start, s |", "|---|---|---|---|---|"]
        for program, fault in itertools.product(PROGRAMS, FAULTS):
            cells = [Cell(place, program, fault, in_place) for in_place in (True, False)]
            starts = [results[cell.key]["first_start"] for cell in cells if cell.key in results]
            start = f"{sum(starts) / len(starts):.1f}" if starts else ""
            lines.append(f"| {program} | {fault} | {' | '.join(_entry(cell, results) for cell in cells)} | {start} |")
        parts.append("\n".join(lines))
    FILE.write_text("\n\n".join(parts) + "\n")


def _entry(cell: Cell, results: Mapping[str, Mapping[str, float]]) -> str:
    found = results.get(cell.key)
    if found is None:
        return why_not(cell) or "not measured yet"
    total = found["until_start"] + found["own"]
    return f"{total:.1f} = {found['until_start']:.1f} + {found['own']:.1f}"
