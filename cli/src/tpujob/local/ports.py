"""Where the processes of a run on this machine report, kept in the folder of the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tpujob.errors import CommandError

FILE = "processes.json"


def keep(run_directory: Path, report_ports: Sequence[int]) -> None:
    """Writes the report port of each process, in order of process id."""
    (run_directory / FILE).write_text(json.dumps({"report_ports": list(report_ports)}))


def newest(root: Path) -> list[int]:
    """The report ports of the newest run.

    Args:
        root: the folder of the job.

    Raises:
        CommandError: nothing was run there.
    """
    runs = sorted(root.glob(f"logs/*/{FILE}"))
    if not runs:
        raise CommandError(f"--local: `tpujob run` has not run this job in {root}; see --directory and -n")
    ports: list[int] = json.loads(runs[-1].read_text())["report_ports"]
    return ports
