"""The curves of a run that has ended here: one HTML file next to its logs, and the lines that name it."""

from __future__ import annotations

from pathlib import Path

from tpujob.errors import CommandError
from tpujob.local.closing import short_path
from tpujob.output.sparkline import sparkline
from tpujob.questions.trainer_program import Program, ask
from tpujob_contract import storage_address

FILE = "report.html"
NUMBERS = "metrics.csv"


def drawn(checkpoint_dir: str, folder: Path) -> list[str]:
    """Writes `report.html` into a folder; returns the lines about it, or one that says why it is not written.

    Without metrics.csv in a local checkpoint directory, as for a custom program, there is neither file nor line.

    Args:
        checkpoint_dir: Of a run that has made steps: a path or an address.
        folder: The folder of the job's logs on this machine.
    """
    if storage_address.is_path(checkpoint_dir) and not Path(checkpoint_dir, NUMBERS).exists():
        return []
    out = folder / FILE
    try:
        (run,) = ask(Program.RUN_REPORT, {"directories": [checkpoint_dir], "out": str(out)})["runs"]
    except CommandError as error:
        return [f"report       is not written: {'; '.join(error.problems)}"]
    lines = []
    if len(run["losses"]) > 1:
        lines.append(f"loss         {run['loss_first']:.3f} → {run['loss']:.3f} {sparkline(run['losses'])}")
    numbers = f"{checkpoint_dir.rstrip('/')}/{NUMBERS}"
    return [*lines, f"report       {short_path(str(out))}, its numbers are in {short_path(numbers)}"]
