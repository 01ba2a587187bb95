"""Lists what a one-machine cluster may leave on this machine, to compare the state before and after it."""

import subprocess
from pathlib import Path

from tools.localcluster.undo import CONTAINER_LOG_LINKS, CONTROL_GROUPS, NETWORK_RESULTS, SHIM_SOCKETS

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
TABLES = ("filter", "nat", "mangle", "raw")

type Traces = dict[str, list[str]]
"""By kind: the names of what exists, each unique and lasting."""


def traces(directory: Path) -> Traces:
    """The current traces.

    Args:
        directory: Of the cluster. Only processes that belong to it are listed: others come and go.
    """
    return {
        "processes": _processes(directory.absolute()),
        "mounts": sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "packet rules": _packet_rules(),
        "network namespaces": _network_namespaces(),
        "control groups": sorted(str(path) for path in CONTROL_GROUPS.glob("**/*tpujob*") if path.is_dir()),
        "settings": [f"{FORWARDING}={FORWARDING.read_text().strip()}"],
        "files": sorted(
            str(path)
            for folder in (CONTAINER_LOG_LINKS, NETWORK_RESULTS, SHIM_SOCKETS)
            if folder.exists()
            for path in (folder, *folder.iterdir())
        ),
    }


def new_traces(before: Traces, after: Traces) -> Traces:
    """The traces that are not in `before`, without empty kinds."""
    new = {kind: sorted(set(found) - set(before[kind])) for kind, found in after.items()}
    return {kind: found for kind, found in new.items() if found}


def _processes(directory: Path) -> list[str]:
    """The processes whose command line contains a path below the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{directory}/".encode() in command:
            found.append(f"{entry.name} {command.replace(b'\0', b' ').decode(errors='replace')[:200]}")
    return sorted(found)


def _packet_rules() -> list[str]:
    rules = []
    for table in TABLES:
        result = subprocess.run(
            ["iptables", "--wait", "--table", table, "--list-rules"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        rules += [f"{table} {line}" for line in result.stdout.splitlines() if not line.startswith("-P")]
    return sorted(rules)


def _network_namespaces() -> list[str]:
    """The namespaces of processes in a cluster's control groups, as other programs have some, too."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and "tpujob" in (entry / "cgroup").read_text():
                found.add(str((entry / "ns" / "net").readlink()))
        except OSError:
            continue  # it has ended
    return sorted(found)
