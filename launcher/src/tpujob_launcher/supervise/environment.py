"""The environment of a command: the variables with which JAX and the job's framework join the job."""

from typing import Dict, Mapping, Sequence

from tpujob_contract.environment import CONFIG, SECRET, DistributedProcess, IndependentWorker, Process
from tpujob_contract.proxies import without_proxies
from tpujob_launcher.reports import frameworks as frameworks

_JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_LOCAL_DEVICES = "JAX_LOCAL_DEVICE_IDS"
"""On CPU, JAX does not use the value. Without it, `jax.distributed.initialize` tries to detect a cluster, which fails
in an image with the package `kubernetes`: pods have no token (jax-ml/jax:jax/_src/clusters/k8s_cluster.py)."""


def child_environment(
    environ: Mapping[str, str], process: Process, command: Sequence[str] = (), metrics_file: str = ""
) -> Dict[str, str]:
    """The environment of the command; with process ids if it is one of several, without them if it works alone."""
    # The trainer asks for it before it takes a profile; a command could print it, or pass it on.
    child = {name: value for name, value in environ.items() if name != SECRET or CONFIG in environ}
    if isinstance(process, DistributedProcess):
        values = (process.coordinator, str(process.num_processes), str(process.process_id))
        child.update(zip(_JAX_VARIABLES, values))  # noqa: B905 - strict= came with 3.10
        if environ.get("JAX_PLATFORMS") == "cpu":
            child[_LOCAL_DEVICES] = ",".join(map(str, range(process.chips_per_host)))
        child.update(frameworks.variables(process, environ, command, metrics_file))
    elif isinstance(process, IndependentWorker):
        # Variables that the image sets could make independent workers wait for each other.
        for name in (*_JAX_VARIABLES, _LOCAL_DEVICES):
            child.pop(name, None)
    if any("_proxy" in name.lower() for name in child):
        # JAX would warn of them, although the job's own connections are exempt.
        child.setdefault("JAX_CHECK_PROXY_ENVS", "false")
    coordinators = [process.coordinator] if isinstance(process, DistributedProcess) else []
    return {**child, **without_proxies(child, coordinators)}
