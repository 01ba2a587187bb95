"""Frameworks that do not read JAX's own variables, or that serve no report: which there are, and what each needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence

from tpujob_contract import maxtext_keys
from tpujob_contract.environment import FRAMEWORK, DistributedProcess, Process
from tpujob_contract.reports import in_place
from tpujob_launcher.frameworks import maxtext, pytorch

if TYPE_CHECKING:
    from tpujob_launcher.reports.reporting import Reporting


def variables(
    process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str], metrics_file: str = ""
) -> Dict[str, str]:
    """The variables of the job's framework; nothing for one that is unknown, or for none.

    Args:
        process: The place of this process.
        environ: What the command is given otherwise; its own settings win where they may.
        command: Program and arguments: a key that is set there must not be set here as well.
        metrics_file: A file that the framework may write its metrics to.
    """
    if environ.get(FRAMEWORK) == "maxtext":
        return maxtext.variables(process, environ, command, metrics_file)
    if environ.get(FRAMEWORK) == "pytorch":
        return pytorch.variables(process, environ)
    return {}


def reporting(
    process: Process, environ: Mapping[str, str], command: Sequence[str], metrics_file: Path
) -> Optional[Reporting]:
    """What reports for the program, where it does not itself; None on all processes but the first.

    Args:
        process: The place of this process.
        environ: Of the command, with `variables`.
        command: Program and arguments.
        metrics_file: As in `variables`.
    """
    if not isinstance(process, DistributedProcess) or process.process_id or environ.get(FRAMEWORK) != "maxtext":
        return None
    if maxtext_keys.setting(maxtext.METRICS_FILE, environ, command) != os.fspath(metrics_file):
        return None  # a file of the person's own, which is not ours to shorten
    # Imported here: HTTP costs the start of every other program a tenth of a second.
    from tpujob_launcher.reports.progress import Progress
    from tpujob_launcher.reports.reporting import Reporting

    progress = Progress(
        metrics_file,
        maxtext.facts,
        steps=maxtext.steps_of(environ, command),
        checkpoints=maxtext.checkpoint_folder(environ, command),
        about={
            "process_id": 0,
            "processes": process.num_processes,
            "checkpoint": process.checkpoint_dir,
            "in_place_restarts": process.in_place_attempt,
            "in_place_cause": process.in_place_cause or None,
            "in_place": in_place.parse(process.in_place_account),
        },
        environ=environ,
    )
    return Reporting(progress, environ, process.report_port)
