"""A restart in place among thousands of launchers: seconds from one death to all programs started again.

    python -m benchmarks.launchers --sizes 64 512 2048

Launcher 0 and some others are the real launcher with a program that does nothing; the rest are sockets of one other
process that speak the real messages over loopback (`launcher_clients`), as if their programs ended at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.launched import JOB, connections
from tools.localcluster.processes import free_ports
from tools.localcluster.waiting import wait_for
from tpujob_launcher.child.processes import descendants

HEADINGS = (
    "launchers",
    "of them real",
    "death to last told, s",
    "death to all started, s",
    "real programs started, s",
    "messages, kB at launcher 0",
    "CPU of launcher 0 to meet, s",
    "CPU of launcher 0 for the restart, s",
    "memory of launcher 0, MiB",
    "load",
)
PROGRAM = 'date +%s.%N > "$FOLDER/$TPUJOB_HOST-${TPUJOB_IN_PLACE_ATTEMPT:-0}"; exec sleep 100000'
TICKS = os.sysconf("SC_CLK_TCK")


def environment(host: int, size: int, port: int, folder: Path) -> dict[str, str]:
    """The environment of one launcher of the job."""
    place = {"TPUJOB_SLICE": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": str(size), "TPUJOB_HOST": str(host)}
    peers = {"TPUJOB_IN_PLACE": "3", "TPUJOB_LAUNCHER_PORT": str(port), "FOLDER": str(folder)}
    at = {"TPUJOB_COORDINATOR": f"127.0.0.1:{port + 1}"}
    return {"PATH": os.environ["PATH"], **JOB, **place, **peers, **at}


def started(folder: Path, hosts: int, attempt: int) -> list[float]:
    """The start times of the real programs of an attempt that have started, as Unix time."""
    texts = [file.read_text() for host in range(hosts) if (file := folder / f"{host}-{attempt}").exists()]
    return [float(text) for text in texts if text.endswith("\n")]


def cpu(pid: int) -> float:
    """The processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Clients:
    """The simulated launchers, in another process."""

    def __init__(self, environ: Mapping[str, str], first: int) -> None:
        command = [sys.executable, "-m", "benchmarks.launcher_clients", str(first)]
        self.process = subprocess.Popen(
            command, env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> dict[str, Any]:
        """Waits for the next answer of the process; returns it."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def measure(size: int, real: int) -> dict[str, Any]:
    """Kills one program among `size` launchers, of which `real` are processes; returns the figures of the restart."""
    port = free_ports(1)[0]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        launchers = []
        for host in range(real):
            command = [sys.executable, "-m", "tpujob_contract.launch", "--", "sh", "-c", PROGRAM]
            with (folder / f"{host}.log").open("w") as log:
                each = subprocess.Popen(command, env=environment(host, size, port, folder), stderr=log, stdout=log)
            stack.callback(each.wait)
            stack.callback(each.kill)
            launchers.append(each)
        wait_for("the real programs", lambda: len(started(folder, real, 0)) == real, timeout_seconds=300)
        lead = launchers[0].pid
        before = cpu(lead)
        clients = Clients(environment(0, size, port, folder), real)
        stack.callback(clients.close)
        clients.answer()
        wait_for("all to have met", lambda: connections(port) >= size - 1, timeout_seconds=300)
        met = cpu(lead)
        (victim,) = descendants(launchers[1].pid)
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        found = clients.answer()
        wait_for("the real programs", lambda: len(started(folder, real, 1)) == real, timeout_seconds=300)
        text = Path(f"/proc/{lead}/statm").read_text().split()[1]
        return {
            "size": size,
            "real": real,
            "told": found["told_at"] - killed,
            "all": max([*started(folder, real, 1), found["allowed_at"]]) - killed,
            "programs": max(started(folder, real, 1)) - killed,
            "messages": found["messages"],
            "bytes": found["bytes"],
            "meet_cpu": met - before,
            "restart_cpu": cpu(lead) - met,
            "memory": int(text) * 4096 / 2**20,
            "load": os.getloadavg()[0],
        }


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of the table row of one size."""
    return (
        f"{found['size']:,}",
        f"{found['real']}",
        f"{found['told']:.2f}",
        f"{found['all']:.2f}",
        f"{found['programs']:.2f}",
        f"{found['messages']:,}, {found['bytes'] / 1e3:,.0f}",
        f"{found['meet_cpu']:.2f}",
        f"{found['restart_cpu']:.2f}",
        f"{found['memory']:.1f}",
        f"{found['load']:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument("--real", type=int, default=32, help="launchers that are processes")
    options = parser.parse_args()
    # The simulated ones raise their limit themselves. So does launcher 0, which starts with the limit of a container.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---" * len(HEADINGS) + "|")
    for size in options.sizes:
        print("| " + " | ".join(row(measure(size, min(options.real, size)))) + " |", flush=True)


if __name__ == "__main__":
    main()
