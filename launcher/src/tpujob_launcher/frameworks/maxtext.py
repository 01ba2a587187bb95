"""MaxText: the variables with which it joins a job, and the data that it writes about its run.

- Variables: AI-Hypercomputer/maxtext:src/maxtext/utils/max_utils.py (initialize_jax_for_cpu) and
  src/maxtext/configs/pyconfig.py (a key that is set on the command line and by a variable is refused).
- Metrics: src/maxtext/common/metric_logger.py (write_metrics_locally): a JSON object for each step and each evaluation,
  appended to `metrics_file`.
- Checkpoints: BASE_OUTPUT_DIRECTORY/RUN_NAME/checkpoints/STEP (src/maxtext/configs/types.py). Checkpoint N holds the
  state after step N, which is the (N + 1)th.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional, Sequence

from tpujob_contract.environment import DistributedProcess
from tpujob_contract.maxtext_keys import setting, variable

METRICS_FILE = "metrics_file"


def variables(
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
