"""An HTML file about one or several runs, written by the trainer from their checkpoint directories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpujob import trainer_program
from tpujob.output.sparkline import sparkline
from tpujob.output.words import counted, magnitude
from tpujob.trainer_program import Program


def write_report(directories: Sequence[str], out: Path) -> dict[str, Any]:
    """Writes the file; returns the facts about each run.

    Raises:
        CommandError: a directory has no metrics or cannot be read from here, or the file cannot be written.
    """
    return trainer_program.ask(Program.RUN_REPORT, {"directories": list(directories), "out": str(out)})


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line for each run, and the file."""
    for run in found["runs"]:
        parts = [f"step {run['step']:,}"]
        if run["loss"] is not None:
            parts.append(f"loss {run['loss_first']:.3f} → {run['loss']:.3f} {sparkline(run['losses'])}".rstrip())
        if run["evaluation_loss_best"] is not None:
            parts.append(f"best evaluation {run['evaluation_loss_best']:.3f}")
        if run["tokens"] is not None:
            parts.append(f"{magnitude(run['tokens'])} tokens")
        parts.append(counted(run["attempts"], "attempt"))
        yield f"{run['name']}: {' · '.join(parts)}"
    yield f"report       {found['file']}"
