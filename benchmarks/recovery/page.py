"""docs/reference/recovery.md."""

import itertools
from collections.abc import Mapping, Sequence

from benchmarks.recovery.cells import FAULTS, PLACES, PROGRAMS, Cell, why_not
from benchmarks.recovery.programs import ROOT

FILE = ROOT / "docs" / "reference" / "recovery.md"
NOT_YET = "not measured yet"
HEAD = """<!-- Written by `make bench-recovery`; do not edit. -->
# Seconds from a fault to the next step

One fault in one process of a tiny job, and the time until process 0 finishes a step of the next attempt, with
[`inPlaceRestarts`](../options/pods.md) and without. Each cell is one measurement, in two summands:

- until the program of process 0 starts again: what the launchers, or JobSet and the operator, cost;
- from there to its step: imports, the meeting, restore, compilation. This is the program's own, and grows with the
  processes that share the cores. A first start, from the launcher's first line, is in the last column.

A dash is a cell without a measurement. In place, a deleted pod is replaced alone, which Kubernetes does 10 s after its
end; without the field all start anew. A lost node costs what Kubernetes takes: it calls a silent node not ready after
50 s, and removes the pods of a node that is gone after 40 s more. Here another machine is there at once; a cloud
takes longer.

Under `tpujob run`, *anew* means that the command ends and is typed again at once. An exception counts from where it is
raised, an OOM kill from the last 16 MiB that the program took. A process that is frozen counts as lost after its
heartbeat of 30 s, or after 60 s in a program that has none. A plain JAX program whose pod is deleted goes on for the
grace period of 15 s: JAX catches the signal, and the program does not ask for it.

Measured on 2 cores without other work. In the first step of many processes these two are busy all the time.

"""


def write(results: Mapping[str, Mapping[str, float]]) -> None:
    """Writes the page of the results."""
    FILE.write_text(page(results))


def page(results: Mapping[str, Mapping[str, float]]) -> str:
    """The page as Markdown, with a table for each place.

    Args:
        results: By `Cell.key`: `first_start`, `until_start` and `own`, in seconds.
    """
    return "\n\n".join([HEAD.rstrip(), *(_section(place, results) for place in PLACES)]) + "\n"


def _section(place: str, results: Mapping[str, Mapping[str, float]]) -> str:
    rows: list[str] = []
    left_out: dict[str, dict[str, list[str]]] = {}
    for fault, program in itertools.product(FAULTS, PROGRAMS):
        cells = [Cell(place, program, fault, in_place) for in_place in (True, False)]
        starts = [results[cell.key]["first_start"] for cell in cells if cell.key in results]
        if starts:
            entries = " | ".join(_entry(results.get(cell.key)) for cell in cells)
            rows.append(f"| {program} | {fault} | {entries} | {sum(starts) / len(starts):.1f} |")
        else:
            reason = NOT_YET if any(not why_not(cell) for cell in cells) else why_not(cells[1])
            left_out.setdefault(reason, {}).setdefault(fault, []).append(program)
    table = ["| Program | Fault | in place, s | anew, s | first start, s |", "|---|---|---|---|---|", *rows]
    parts = [f"## {place[0].upper()}{place[1:]}", "\n".join(table) if rows else "", _sentences(left_out)]
    return "\n\n".join(part for part in parts if part)


def _entry(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    total = found["until_start"] + found["own"]
    return f"{total:.1f} = {found['until_start']:.1f} + {found['own']:.1f}"


def _sentences(left_out: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """A sentence for each reason, with its faults, and their programs if these are not all."""
    sentences = []
    for reason, faults in left_out.items():
        all_of = [fault for fault, programs in faults.items() if len(programs) == len(PROGRAMS)]
        some = [f"{fault} ({', '.join(programs)})" for fault, programs in faults.items() if fault not in all_of]
        sentences.append(f"{reason[0].upper()}{reason[1:]}: {', '.join([*all_of, *some])}.")
    return "\n".join(sentences)
