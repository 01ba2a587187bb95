"""The known frameworks that do not read JAX's own variables, or that serve no report, and what each needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence

from tpujob_contract import maxtext_keys
from tpujob_contract.environment import FRAMEWORK, DistributedProcess, Process
from tpujob_contract.reports import in_place
from tpujob_launcher.frameworks import maxtext, pytorch
from tpujob_launcher.reports.progress import Progress


def variables(
    process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str], metrics_file: str = ""
) -> Dict[str, str]:
    """The variables for the job's framework; empty for an unknown one. For the arguments see `maxtext.variables`."""
    if environ.get(FRAMEWORK) == "maxtext":
        return maxtext.variables(process, environ, command, metrics_file)
    if environ.get(FRAMEWORK) == "pytorch":
        return pytorch.variables(process, environ)
    return {}


def progress(
    process: Process, environ: Mapping[str, str], command: Sequence[str], metrics_file: Path
) -> Optional[Progress]:
    """The progress of a program that does not report it itself; None: it is not known here.

    It is known on process 0 of a MaxText job whose metrics go to `metrics_file`. `environ` includes the result of
    `variables`, which got the same `metrics_file`.
    """
    if not isinstance(process, DistributedProcess) or process.process_id or environ.get(FRAMEWORK) != "maxtext":
        return None
    if maxtext_keys.setting(maxtext.METRICS_FILE, environ, command) != os.fspath(metrics_file):
        return None  # the user's own file, which must not be truncated
    return Progress(
        metrics_file,
        maxtext.facts,
        checkpoints=maxtext.checkpoint_folder(environ, command),
        about={
            "process_id": 0,
            "steps": maxtext.steps_of(environ, command),
            "processes": process.num_processes,
            "checkpoint": process.checkpoint_dir,
            "in_place_restarts": process.in_place_attempt,
            "in_place_cause": process.in_place_cause or None,
            "in_place": in_place.parse(process.in_place_account),
        },
        environ=environ,
        port=process.report_port,
    )
