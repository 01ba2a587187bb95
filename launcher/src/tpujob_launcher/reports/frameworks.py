"""The known frameworks that do not read JAX's own variables, or that serve no report, and what each needs."""

import math
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from tpujob_contract import maxtext_keys
from tpujob_contract.environment import FRAMEWORK, DistributedProcess, Process
from tpujob_contract.maxtext_keys import setting, variable
from tpujob_contract.reports import in_place
from tpujob_launcher.reports.progress import Progress


def variables(
    process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str], metrics_file: str = ""
) -> Dict[str, str]:
    """The variables for the job's framework; empty for an unknown one. For the arguments see `maxtext_variables`.

    RANK and WORLD_SIZE are for PyTorch alone: where they are set, webdataset refuses files that are divided already.
    """
    if environ.get(FRAMEWORK) == "maxtext":
        return maxtext_variables(process, environ, command, metrics_file)
    if environ.get(FRAMEWORK) == "pytorch":
        return pytorch_variables(process, environ)
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
    if maxtext_keys.setting(METRICS_FILE, environ, command) != os.fspath(metrics_file):
        return None  # the user's own file, which must not be truncated
    return Progress(
        metrics_file,
        facts,
        checkpoints=checkpoint_folder(environ, command),
        about={
            "process_id": 0,
            "steps": steps_of(environ, command),
            "processes": process.num_processes,
            "checkpoint": process.checkpoint_dir,
            "in_place_restarts": process.in_place_attempt,
            "in_place_cause": process.in_place_cause or None,
            "in_place": in_place.parse(process.in_place_account),
        },
        environ=environ,
        port=process.report_port,
    )


METRICS_FILE = "metrics_file"


def maxtext_variables(
    process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str], metrics_file: str = ""
) -> Dict[str, str]:
    """The variables that MaxText needs in addition to those that JAX reads.

    Args:
        process: This process.
        environ: The rest of the command's environment; its settings take precedence where that is possible.
        command: Program and arguments; a key that is set there must not be set by a variable as well.
        metrics_file: The file to which process 0 writes metrics; empty: none.
    """
    host, _, port = process.coordinator.rpartition(":")
    found = {
        "JAX_PROCESS_COUNT": str(process.num_processes),
        "JOB_INDEX": str(process.slice_index),
        "JOB_COMPLETION_INDEX": str(process.host_index),
        "PROCESSES_IN_JOB": str(process.hosts_per_slice),
        "JAX_COORDINATOR_PORT": port,
        # Without it MaxText needs packages of Google Cloud that access the network when they are imported.
        "DECOUPLE_GCLOUD": environ.get("DECOUPLE_GCLOUD", "TRUE"),
    }
    if environ.get("JAX_PLATFORMS") == "cpu":
        # MaxText resolves the whole value as a host name, and uses port 1234.
        found["JAX_COORDINATOR_ADDRESS"] = host
    own = {
        "base_output_directory": process.checkpoint_dir,
        "run_name": process.name,
        METRICS_FILE: "" if process.process_id else metrics_file,
    }
    for key, value in own.items():
        if value and setting(key, environ, command) is None:
            found[variable(key)] = value
    return found


def checkpoint_folder(environ: Mapping[str, str], command: Sequence[str]) -> Optional[str]:
    """The folder of the checkpoints; None: neither the command nor the environment, including `variables`, sets it."""
    base = setting("base_output_directory", environ, command)
    run_name = setting("run_name", environ, command)
    return f"{base.rstrip('/')}/{run_name}/checkpoints" if base and run_name else None


def steps_of(environ: Mapping[str, str], command: Sequence[str]) -> Optional[int]:
    """Steps of the whole run; None: neither command nor environment sets them."""
    text = setting("steps", environ, command) or ""
    return int(text) if text.isdecimal() else None


def facts(record: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of a report in a line of metrics; empty for any other line."""
    # A number that is not finite would make the report invalid JSON.
    numbers = {key: value for key, value in record.items() if isinstance(value, float) and math.isfinite(value)}
    if "step" not in numbers:
        return {}
    done = int(numbers["step"]) + 1
    if "eval/avg_loss" in record:
        return {"evaluation_loss": numbers.get("eval/avg_loss"), "evaluation_step": done}
    if "learning/loss" not in record:
        return {}
    seconds, tokens = numbers.get("perf/step_time_seconds"), numbers.get("learning/total_weights")
    return {
        "step": done,
        "loss": numbers.get("learning/loss"),
        "gradient_norm": numbers.get("learning/raw_grad_norm", numbers.get("learning/grad_norm")),
        # The weights of a step are the tokens of all processes that count.
        "tokens_per_second": tokens / seconds if tokens and seconds else None,
    }


def pytorch_variables(process: DistributedProcess, environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that PyTorch needs; `environ` takes precedence for those that can be the same on all hosts."""
    host, _, port = process.coordinator.rpartition(":")
    rank, world_size = str(process.process_id), str(process.num_processes)
    # The coordinator's port is free: it is reserved for JAX.
    port = environ.get("MASTER_PORT", port)
    choices = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "PJRT_DEVICE": "CPU" if environ.get("JAX_PLATFORMS") == "cpu" else "TPU",
    }
    return {
        **{name: environ.get(name, value) for name, value in choices.items()},
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": host,
        "PET_NODE_RANK": rank,
        "PET_NNODES": world_size,
        "PET_MASTER_ADDR": host,
    }
