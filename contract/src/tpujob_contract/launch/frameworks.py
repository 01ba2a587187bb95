"""What a framework calls a process's place in its job, where it does not read JAX's own variables.

- maxtext: AI-Hypercomputer/maxtext:src/maxtext/utils/max_utils.py (initialize_jax_for_cpu) and
  src/maxtext/configs/pyconfig.py (variables M_KEY override keys of the configuration).
"""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

from tpujob_contract.environment import DistributedProcess

FRAMEWORKS = ("maxtext",)


def variables(
    framework: str, process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str]
) -> Dict[str, str]:
    """The variables of a framework; nothing for one that is unknown.

    Args:
        framework: `spec.framework`.
        process: The place of this process.
        environ: What the command is given otherwise; its own settings win where they may.
        command: Program and arguments: a key that is set there must not be set here as well.
    """
    return _maxtext(process, environ, command) if framework == "maxtext" else {}


def _maxtext(process: DistributedProcess, environ: Mapping[str, str], command: Sequence[str]) -> Dict[str, str]:
    host, _, port = process.coordinator.rpartition(":")
    found = {
        "JAX_PROCESS_COUNT": str(process.num_processes),
        "JOB_INDEX": str(process.slice_index),
        "JOB_COMPLETION_INDEX": str(process.host_index),
        "PROCESSES_IN_JOB": str(process.hosts_per_slice),
        "JAX_COORDINATOR_PORT": port,
        # Without it MaxText needs packages of Google Cloud that reach for the network when they are imported.
        "DECOUPLE_GCLOUD": environ.get("DECOUPLE_GCLOUD", "TRUE"),
    }
    if environ.get("JAX_PLATFORMS") == "cpu":
        # It resolves the whole text as the name of a host, and takes port 1234.
        found["JAX_COORDINATOR_ADDRESS"] = host
    own = {"base_output_directory": process.checkpoint_dir, "run_name": process.name}
    for key, value in own.items():
        is_given = any(argument.startswith(key + "=") for argument in command)
        if value and not is_given and "M_" + key.upper() not in environ:
            found["M_" + key.upper()] = value
    return found
