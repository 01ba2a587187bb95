"""Processes of the one-machine cluster, found on this machine: to be frozen, or killed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.jobs import Jobs
from tools.localcluster import background


@contextmanager
def frozen(process: int) -> Iterator[None]:
    """The process stands still: its connections stay, and it answers nothing."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        # Its kubelet may have ended it meanwhile.
        if Path(f"/proc/{process}").exists():
            os.kill(process, signal.SIGCONT)


def operator_process(jobs: Jobs, pod: str) -> int:
    """The operator's process of a pod, as this machine knows it."""
    found = jobs.cluster.get("pod", pod, jobs.surroundings.operator_namespace)
    assert found is not None
    uid = found["metadata"]["uid"]
    (process,) = (each for each in processes("tpujob-operator") if uid in cgroup(each).replace("_", "-"))
    return process


def process_of(program: str) -> int:
    """The process of a program of the control plane."""
    (process,) = control_plane(program)
    return process


def control_plane(program: str) -> list[int]:
    """The processes of a program of the control plane: none after it has died, until it is started again."""
    found = {each: command(each) for each in processes(str(background.DIRECTORY))}
    return [each for each, line in found.items() if Path(line.partition(" ")[0]).name == program]


def processes(word: str) -> list[int]:
    """The processes of this machine that have it in their commands."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if word in command(number)]


def command(process: int) -> str:
    """Its program and arguments; empty when it has ended."""
    return _read(process, "cmdline").replace("\0", " ")


def is_first(process: int) -> bool:
    """Whether it is process 1 of a container, and not the one that only keeps a pod's namespaces."""
    lines = _read(process, "status").splitlines()
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1" and command(process).split() != ["/pause"]


def cgroup(process: int) -> str:
    """Its control groups, a line each; empty when it has ended."""
    return _read(process, "cgroup")


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
