"""A job in a file, and the processes that `tpujob run` has for it: a launcher for each host, with its program below."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tpujob_contract import kubernetes_names


def write_job(file: Path, name: str, spec: Mapping[str, Any]) -> None:
    """Writes a job."""
    kind = {"apiVersion": kubernetes_names.API_VERSION, "kind": kubernetes_names.KIND}
    YAML().dump({**kind, "metadata": {"name": name}, "spec": dict(spec)}, file)


def launchers(run: int) -> dict[int, int]:
    """The pid of each launcher below a `tpujob run`, by host."""
    found = ((_host(pid), pid) for pid in _children(run))
    return {host: pid for host, pid in found if host is not None}


def programs(run: int) -> dict[int, int]:
    """The pid of each program that runs below a launcher, by host."""
    return {host: below[0] for host, pid in launchers(run).items() if (below := _children(pid))}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def _host(pid: int) -> int | None:
    """The host index in the environment of a process; None: there is none."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == b"TPUJOB_HOST":
                return int(value)
    return None
