"""Thousands of launchers: how long they take to meet, what they cost launcher 0 in training, and a restart in place.

    python -m benchmarks.launchers --sizes 64 512 2048 10000

Launcher 0 and some others are the real launcher with a program that is connected to it as a trainer is; the rest are
sockets of one other process that send the real messages over loopback (`launcher_clients`), as if their programs ended
at once. JAX takes no part. The program of launcher 1 is killed. 10,000 need `ulimit -n` 10500.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import cpu_seconds, parser, resident_mib, show, table
from benchmarks.launcher_clients import PROGRESS, about_program
from tests.harness.launched import JOB, LAUNCHER, PYTHON
from tools.localcluster.processes import free_ports
from tools.localcluster.waiting import wait_for
from tpujob_contract.environment import PEERS_SOCKET
from tpujob_launcher.peers.messages import HEARTBEAT
from tpujob_launcher.peers.messages import PROGRESS as PROGRESS_REPORT
from tpujob_launcher.peers.timing import HEARTBEATS
from tpujob_launcher.supervise.processes import descendants

HEADINGS = (
    "launchers",
    "of them real",
    "all have met, s",
    "CPU of launcher 0 for it, s",
    "messages, MB for it",
    "messages/s, kB/s in training",
    "CPU in training, % of a core",
    "death to last told, s",
    "death to all started, s",
    "messages, kB for it",
    "CPU of launcher 0 for it, s",
    "memory of launcher 0, MiB",
    "load",
)
PROGRAM = f"""
import json, os, select, socket, sys, time
_, about, progress, interval = sys.argv
name = os.environ["TPUJOB_HOST"] + "-" + os.environ.get("TPUJOB_IN_PLACE_ATTEMPT", "0")
open(os.path.join(os.environ["FOLDER"], name), "w").write(f"{{time.time()}}\\n")
sock = socket.socket(socket.AF_UNIX)
sock.connect(os.environ["{PEERS_SOCKET}"])
sock.sendall(about.encode())
while True:
    if select.select([sock], [], [], float(interval))[0]:
        heard = sock.recv(2**16)
        if not heard or b'"end"' in heard:
            sys.exit(1)
    sock.sendall(progress.encode())
"""


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


class Clients:
    """The simulated launchers, in another process."""

    def __init__(self, environ: Mapping[str, str], first: int, *seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.launcher_clients", str(first), *map(str, seconds)]
        self.process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True)

    def answer(self) -> dict[str, Any]:
        """Waits for the next answer of the process; returns it."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def launch(stack: contextlib.ExitStack, environ: Mapping[str, str], heartbeat_seconds: float, log: Path) -> int:
    """Starts a real launcher, until the stack is closed; returns its process id."""
    about = json.dumps({"hello": {"version": 1, **about_program(heartbeat_seconds)}}) + "\n"
    program = [*PYTHON, PROGRAM, about, json.dumps({"state": PROGRESS}) + "\n", str(heartbeat_seconds / HEARTBEATS)]
    with log.open("w") as output:
        process = subprocess.Popen([*LAUNCHER, "--", *program], env=environ, stderr=output, stdout=output)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def measure(size: int, real: int, heartbeat_seconds: float = 30.0, training_seconds: float = 18.0) -> dict[str, Any]:
    """Lets `size` launchers meet, of which `real` are processes, and kills one program; returns the figures."""
    port = free_ports(1)[0]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        own = [environment(host, size, port, folder) for host in range(real)]
        pids = [launch(stack, each, heartbeat_seconds, folder / f"{host}.log") for host, each in enumerate(own)]
        wait_for("the real programs", lambda: len(started(folder, real, 0)) == real, timeout_seconds=300)
        cpu = [cpu_seconds(pids[0])]
        clients = Clients(own[0], real, heartbeat_seconds, training_seconds)
        stack.callback(clients.close)
        answers = []
        for _ in ("met", "training", "trained"):
            answers.append(clients.answer())
            cpu.append(cpu_seconds(pids[0]))
        (victim,) = descendants(pids[1])
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        answers.append(clients.answer())
        wait_for("the real programs", lambda: len(started(folder, real, 1)) == real, timeout_seconds=300)
        met, training, trained, restarted = answers
        return {
            "size": size,
            "real": real,
            "met": met["seconds"],
            "met_cpu": cpu[1] - cpu[0],
            "met_sent": sent(met),
            "training_sent": [each / (training_seconds or 1) for each in sent(trained, training)],
            "training_cpu": (cpu[3] - cpu[2]) / (training_seconds or 1),
            "told": restarted["told_at"] - killed,
            "all": max([*started(folder, real, 1), restarted["allowed_at"]]) - killed,
            "sent": sent(restarted, trained, without=(HEARTBEAT, PROGRESS_REPORT)),
            "restart_cpu": cpu_seconds(pids[0]) - cpu[3],
            "memory": resident_mib(pids[0]),
            "load": os.getloadavg()[0],
        }


def sent(
    after: Mapping[str, Any], before: Mapping[str, Any] | None = None, *, without: Iterable[str] = ()
) -> tuple[int, int]:
    """Messages and bytes between two answers of the simulated launchers, without some kinds."""
    messages, bytes_ = (
        sum(
            count - (before or {}).get(what, {}).get(kind, 0)
            for kind, count in after[what].items()
            if kind not in without
        )
        for what in ("messages", "bytes")
    )
    return messages, bytes_


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of the table row of one size."""
    return (
        f"{found['size']:,}",
        f"{found['real']}",
        f"{found['met']:.2f}",
        f"{found['met_cpu']:.2f}",
        f"{found['met_sent'][0]:,}, {found['met_sent'][1] / 1e6:,.1f}",
        f"{found['training_sent'][0]:,.0f}, {found['training_sent'][1] / 1e3:,.0f}",
        f"{100 * found['training_cpu']:.1f}",
        f"{found['told']:.2f}",
        f"{found['all']:.2f}",
        f"{found['sent'][0]:,}, {found['sent'][1] / 1e3:,.0f}",
        f"{found['restart_cpu']:.2f}",
        f"{found['memory']:.1f}",
        f"{found['load']:.1f}",
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 2048, 10_000])
    arguments.add_argument("--real", type=int, default=32, help="launchers that are processes")
    options = arguments.parse_args()
    # The simulated ones raise their limit themselves. So does launcher 0, which starts with the limit of a container.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    show(table(HEADINGS, (row(measure(size, min(options.real, size))) for size in options.sizes)))


if __name__ == "__main__":
    main()
