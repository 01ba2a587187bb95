"""Plans the processes of a JobSet on this machine, and their environments. Pure.

A process gets the environment of its pod, resolved through the same field references. Without a cluster there are
differences: the coordinator has another address, each process has its own port for /report, as many CPU devices replace
TPU chips unless this machine has these, HOME is the user's own instead of a volume, and the values of Secrets come from
this environment.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.local.placement import HERE, Placement
from tpujob.output.errors import CommandError
from tpujob_contract import commands
from tpujob_contract import environment as names
from tpujob_contract.job_code import DIRECTORY as CODE_DIRECTORY
from tpujob_resource.jobset.expand import Pod, expand_pods

_TPU_RESOURCE = "google.com/tpu"


@dataclass(frozen=True, kw_only=True)
class LocalProcess:
    """One pod of the JobSet, as a process of this machine."""

    index: int
    """Position among the pods, slice by slice and host by host: the process id."""
    name: str
    """Name of the pod without its random suffix."""
    argv: tuple[str, ...]
    environ: dict[str, str]
    report_port: int
    log: Path
    """Gets stdout and stderr."""
    working_directory: Path | None = None
    """None: that of the command line."""
    termination_log: Path
    """Gets exit code and last lines when the process fails."""


def plan_processes(
    jobset: Mapping[str, Any],
    *,
    inherited: Mapping[str, str],
    directory: Path,
    checkpoint_dir: str,
    coordinator_port: int,
    launcher_port: int,
    report_ports: Sequence[int],
    secret: str = "",
    code: Path | None = None,
    placement: Placement = HERE,
    attempt: int = 0,
) -> list[LocalProcess]:
    """The processes of a JobSet that run on this machine, in order of process id.

    Args:
        jobset: As `build_jobset` returned it.
        inherited: Environment of this process; reserved variables are left out of it.
        directory: Folder of this run, for logs and termination messages.
        checkpoint_dir: For the trainer if the job names none.
        coordinator_port: Free port of this machine, for process 0.
        launcher_port: The same, for launcher 0 if all processes run here.
        report_ports: A free port for every process of this machine.
        secret: What the processes show each other; empty: nothing.
        code: Where the job's code was unpacked.
        placement: Which processes run here, and on which devices.
        attempt: How often the job was started before.
    """
    outside = {**_outside(inherited, placement), names.SECRET: secret}
    coordinator = placement.coordinator or f"127.0.0.1:{coordinator_port}"
    processes = []
    for (index, pod), report_port in zip(_pods_here(jobset, placement, attempt), report_ports, strict=True):
        termination_log = directory / f"process-{index}.ending"
        processes.append(
            LocalProcess(
                index=index,
                name=pod.name,
                argv=_local_argv(pod.argv),
                environ={
                    **outside,
                    **_given(pod),
                    **_from_here(pod, {**inherited, names.SECRET: secret}),
                    **({} if placement.on_chips else _rehearsal(pod)),
                    **({names.COORDINATOR: coordinator} if names.COORDINATOR in pod.environ else {}),
                    **({names.LAUNCHER_PORT: str(launcher_port)} if placement.host is None else {}),
                    **({names.CODE: str(code)} if code is not None else {}),
                    names.CHECKPOINT_DIR: pod.environ.get(names.CHECKPOINT_DIR) or checkpoint_dir,
                    names.REPORT_PORT: str(report_port),
                    **({names.IN_PLACE_PORT: "0"} if names.IN_PLACE_PORT in pod.environ else {}),  # not read here
                    names.TERMINATION_LOG: str(termination_log),
                },
                report_port=report_port,
                working_directory=code if pod.container.get("workingDir") == CODE_DIRECTORY else None,
                log=directory / f"process-{index}.log",
                termination_log=termination_log,
            )
        )
    return processes


def _pods_here(jobset: Mapping[str, Any], placement: Placement, attempt: int) -> list[tuple[int, Pod]]:
    """The pods that run on this machine, each with its position among all."""
    pods = enumerate(expand_pods(jobset, restart_attempt=attempt))
    return [(index, pod) for index, pod in pods if placement.host in (None, index)]


def _outside(inherited: Mapping[str, str], placement: Placement) -> dict[str, str]:
    """This environment without the variables that configure the processes of a job."""
    # On chips, libtpu's own variables are kept: they describe this machine.
    reserved = [each for each in names.RESERVED_PREFIXES if not (placement.on_chips and each.startswith("TPU_"))]
    return {k: v for k, v in inherited.items() if not k.startswith((*reserved, "JAX_"))}


def _given(pod: Pod) -> dict[str, str]:
    """The pod's variables, without those whose value is the mount path of an emptyDir (HOME)."""
    empty = {v["name"] for v in pod.spec.get("volumes", []) if "emptyDir" in v}
    mounts = {m["mountPath"] for m in pod.container.get("volumeMounts", []) if m["name"] in empty}
    return {k: v for k, v in pod.environ.items() if v not in mounts}


def _from_here(pod: Pod, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables that a Secret or a ConfigMap would give, from this environment.

    Raises:
        CommandError: one is not set here.
    """
    missing = [name for name in pod.from_cluster if name not in inherited]
    if missing:
        raise CommandError(
            f"spec.env: {', '.join(missing)} would come from a Secret or ConfigMap of the cluster; export it here first"
        )
    return {name: inherited[name] for name in pod.from_cluster}


def _rehearsal(pod: Pod) -> dict[str, str]:
    """The variables for as many CPU devices as the pod would have TPU chips; none for a pod without TPU."""
    chips = pod.container.get("resources", {}).get("limits", {}).get(_TPU_RESOURCE)
    return {} if chips is None else {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(chips)}


def _local_argv(command: Sequence[str]) -> tuple[str, ...]:
    """The pod's command with this interpreter's launcher in place of the image's."""
    for launcher in (commands.IN_IMAGE, commands.CARRIED):
        if tuple(command[: len(launcher)]) == launcher:
            rest = tuple(command[len(launcher) :])
            # This interpreter replaces the image's Python: its environment has the trainer that the image would have.
            rest = (sys.executable, *rest[1:]) if rest[:1] in {("python",), ("python3",)} else rest
            # -P: the modules of the current folder are not those of Python.
            return (sys.executable, "-P", "-m", "tpujob_contract.launch", "--", *rest)
    return tuple(command)
