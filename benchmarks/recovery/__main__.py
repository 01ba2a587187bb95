"""`python -m benchmarks.recovery`: plays faults, keeps what they cost in benchmarks/recovery.json, and writes the page.

With `make cluster` in another terminal for the rows of pods. What was measured before stays; `--again` replaces it.
"""

import argparse
import dataclasses
import itertools
import json
import sys
import tempfile
import traceback
from pathlib import Path

from benchmarks.recovery import desk, page, pods
from benchmarks.recovery.cells import FAULTS, PLACES, PROGRAMS, Cell, why_not
from benchmarks.recovery.programs import ROOT

RESULTS = ROOT / "benchmarks" / "recovery.json"


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--place", action="append", choices=PLACES)
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--fault", action="append", choices=FAULTS)
    parser.add_argument("--how", choices=("in place", "anew"), help="default: both")
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--write", action="store_true", help="only write the page of what was measured")
    options = parser.parse_args()
    places, programs = options.place or PLACES, options.program or PROGRAMS
    failed = 0
    for place, program, fault in itertools.product(places, programs, options.fault or FAULTS):
        for in_place in {"in place": (True,), "anew": (False,)}.get(options.how, (True, False)):
            cell = Cell(place, program, fault, in_place)
            if options.write or why_not(cell) or (cell.key in _results() and not options.again):
                continue
            try:
                found = _measure(cell)
            except (Exception, SystemExit):  # noqa: BLE001 - the other cells go on
                traceback.print_exc()
                failed += 1
                continue
            print(cell.key, found, flush=True)
            # Read again: another run may have measured other cells meanwhile.
            RESULTS.write_text(json.dumps(_results() | {cell.key: found}, indent=1, sort_keys=True) + "\n")
    page.write(_results())
    return int(failed > 0)


def _results() -> dict[str, dict[str, float]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _measure(cell: Cell) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        if cell.pods:
            found = pods.measure(cell.program, cell.fault, in_place=cell.in_place, pods=cell.pods, folder=folder)
        else:
            found = desk.measure(cell.program, cell.fault, in_place=cell.in_place, folder=folder)
    first, again = found
    measured = {"first_start": first.own, **dataclasses.asdict(again)}
    return {name: round(seconds, 2) for name, seconds in measured.items()}


if __name__ == "__main__":
    sys.exit(main())
