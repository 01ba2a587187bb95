"""The journal of a one-machine cluster's changes to its machine, each recorded before it is made, and their undoing.

- A journal has one line of JSON per change. A cluster that is killed at any moment leaves a journal from which
  `undo` ends it; an entry can be undone twice, and also if its change was never made.
- Nothing is identified by its name alone: processes by pid and start time, or by the control group or socket that only
  this cluster has; mounts and links by the cluster's directory.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.localcluster.waiting import wait_for

CONTROL_GROUPS = Path("/sys/fs/cgroup")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
NETWORK_RESULTS = Path("/var/lib/cni/results")
SHIM_SOCKETS = Path("/run/containerd/s")
GRACE_SECONDS = 20


class Journal:
    """The changes of one cluster, oldest first."""

    def __init__(self, file: Path) -> None:
        """Sets the file, which need not exist."""
        self.file = file

    def note(self, kind: str, **details: object) -> None:
        """Records a change; call it before making the change. The kind is a key of `UNDO`."""
        with self.file.open("a") as lines:
            lines.write(json.dumps({"kind": kind, **details}) + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def note_fixed_places(self, network: str) -> None:
        """Records what the kubelet, the network plugins and containerd will leave in folders fixed in their code."""
        links, results, sockets = CONTAINER_LOG_LINKS, NETWORK_RESULTS, SHIM_SOCKETS
        for folder in (links, results.parent, results, sockets.parent, sockets):
            if not folder.exists():
                self.note("folder", folder=str(folder))
        self.note("traces", directory=str(self.file.parent), network=network)

    def entries(self) -> list[dict[str, str]]:
        """All recorded changes; a line cut short by a crash is left out, because its change was not made."""
        try:
            lines = self.file.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def undo(journal: Journal) -> None:
    """Undoes all changes, newest first, and removes the journal."""
    for entry in reversed(journal.entries()):
        details = {key: value for key, value in entry.items() if key != "kind"}
        UNDO[entry["kind"]](**details)
    journal.file.unlink(missing_ok=True)


def start_time(pid: int) -> str:
    """A process's start time in clock ticks, which with the pid identifies it; empty if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def end_process(pid: str, started: str) -> None:
    """Ends a process, by SIGKILL after a while, and waits until it is gone; leaves one that reuses its pid alone."""

    def is_gone() -> bool:
        return start_time(int(pid)) != started

    for number in (signal.SIGTERM, signal.SIGKILL):
        if is_gone():
            return
        os.kill(int(pid), number)
        try:
            wait_for(f"process {pid} to end", is_gone, timeout_seconds=GRACE_SECONDS)
        except TimeoutError:
            continue


def _end_shims(socket: str, state: str) -> None:
    """Kills containerd's shims, which survive it, and clients that wait for it forever; removes the shims' sockets.

    The sockets are outside containerd's folders.
    """
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _belongs_to(process, socket):
            _kill(int(process.name))
    for address in Path(state).glob("io.containerd.runtime.v2.task/*/*/address"):
        Path(address.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)


def _command(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return [""]


def _belongs_to(process: Path, socket: str) -> bool:
    arguments = _command(process)
    return Path(arguments[0]).name in ("containerd-shim-runc-v2", "ctr") and socket in arguments


def process_with(argument: str) -> int:
    """The pid of the only process with this argument on its command line."""
    (pid,) = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and argument in _command(each))
    return pid


def processes_below(control_group: str) -> set[int]:
    """The pids in a control group and all groups below it."""
    return {pid for root in _roots(control_group) for pid in _pids_in(root)}


def _roots(control_group: str) -> list[Path]:
    places = (CONTROL_GROUPS / control_group, *CONTROL_GROUPS.glob(f"*/{control_group}"))
    return [root for root in places if root.is_dir()]


def _end_control_group(name: str) -> None:
    roots = _roots(name)

    def kill_all() -> bool:
        pids = processes_below(name)
        for pid in pids:
            _kill(pid)
        return not pids

    wait_for(f"the processes in control group {name} to end", kill_all)
    for root in roots:
        folders = [Path(path) for path, _, _ in os.walk(root, topdown=False)]
        for folder in folders:
            _remove_control_group(folder)


def _pids_in(root: Path) -> Iterator[int]:
    for processes in root.rglob("cgroup.procs"):
        try:
            yield from map(int, processes.read_text().split())
        except (FileNotFoundError, OSError):
            continue  # the group has been removed


def _remove_control_group(folder: Path) -> None:
    def is_removed() -> bool:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the kernel has not released the last process yet
        return True

    wait_for(f"{folder} to be removed", is_removed)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _unmount(directory: str) -> None:
    """Unmounts everything below the directory, innermost first."""
    points = [
        line.split()[1].encode().decode("unicode_escape") for line in Path("/proc/mounts").read_text().splitlines()
    ]
    for point in sorted((point for point in points if point.startswith(f"{directory}/")), key=len, reverse=True):
        # Lazily if it is still in use: the mount leaves this namespace at once.
        if _run("umount", point) != 0:
            _run("umount", "--lazy", point)


def _remove_rule(table: str, chain: str, rule: list[str]) -> None:
    while _run("iptables", "--wait", "--table", table, "--check", chain, *rule) == 0:
        _run("iptables", "--wait", "--table", table, "--delete", chain, *rule)


def _remove_link(name: str) -> None:
    if Path(f"/sys/class/net/{name}").exists():
        _run("ip", "link", "delete", name)


def _set_back(file: str, content: str) -> None:
    Path(file).write_text(content)


def _remove_traces(directory: str, network: str) -> None:
    for link in CONTAINER_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{directory}/"):
            link.unlink()
    for result in NETWORK_RESULTS.glob(f"{network}-*-eth0"):
        container = result.name.removeprefix(f"{network}-").removesuffix("-eth0")
        for own in (NETWORK_RESULTS / f"cni-loopback-{container}-lo", result):
            own.unlink(missing_ok=True)


def _remove_if_empty(folder: str) -> None:
    if Path(folder).is_dir() and not any(Path(folder).iterdir()):
        Path(folder).rmdir()


def _remove_tree(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _undo_another(file: str) -> None:
    undo(Journal(Path(file)))


def _run(*command: str) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode


UNDO: dict[str, Callable[..., None]] = {
    "process": end_process,
    "shims": _end_shims,
    "control group": _end_control_group,
    "mounts": _unmount,
    "rule": _remove_rule,
    "link": _remove_link,
    "setting": _set_back,
    "traces": _remove_traces,
    "folder": _remove_if_empty,
    "tree": _remove_tree,
    "journal": _undo_another,
}
