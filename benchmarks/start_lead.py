"""Process 0 among simulated processes: its own rendezvous and peer monitor, measured from within.

    python -m benchmarks.start_lead SIZE HEARTBEAT_SECONDS TRAINING_SECONDS

Prints one JSON object. `benchmarks.start` calls it, a new process for each size, so that memory is of this size alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.start_clients import hello
from tools.localcluster.processes import free_ports
from tpujob_trainer.distributed import rendezvous_client
from tpujob_trainer.distributed.failure import ProgressState
from tpujob_trainer.distributed.peer_monitor import BEATS, Peers

LIMIT_SECONDS = 300.0


def resident_mib() -> float:
    """Memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


class Clients:
    """The other processes, in a process of their own."""

    def __init__(self, port: int, size: int, heartbeat_seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.start_clients", str(port), str(size), str(heartbeat_seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self) -> dict[str, Any]:
        """Their next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the simulated processes ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, command: str) -> dict[str, Any]:
        """Their answer to a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(size: int, heartbeat_seconds: float, training_seconds: float) -> dict[str, Any]:
    """Seconds, messages, bytes and memory of one start, some training, and one death."""
    # No JAX, so no connections to its service.
    rendezvous_client.FILES_EACH = 1
    port = free_ports(1)[0]
    positions = [f"slice {i // 16}, host {i % 16}" for i in range(size)]
    empty = resident_mib()
    clients = Clients(port, size, heartbeat_seconds)
    try:
        cpu = time.process_time()
        own, where = hello(0), {"host": "127.0.0.1", "port": port}
        membership, lines = rendezvous_client.receive(own, positions, limit_seconds=LIMIT_SECONDS, **where)  # type: ignore[arg-type]
        met_cpu = time.process_time() - cpu
        peers = Peers(0, membership.hosts, lines, heartbeat_seconds=heartbeat_seconds)
        failed = threading.Event()
        state = ProgressState("training", 1200, 1234, 1.5, "loop.py:123 in run_step")
        peers.start(on_failure=lambda failure: failed.set(), progress_state=lambda: state)
        met = clients.answer()
        # The beats at the beginning are a burst; what follows is measured from a whole interval to another.
        time.sleep(heartbeat_seconds / BEATS)
        before, cpu, began = clients.ask("count"), time.process_time(), time.monotonic()
        time.sleep(training_seconds)
        after, cpu, seconds = clients.ask("count"), time.process_time() - cpu, time.monotonic() - began
        memory = resident_mib()
        if failed.is_set():
            raise SystemExit("a process was lost before one was killed")
        told = clients.ask("kill")
    finally:
        clients.end()
    rates = {key: (after[key] - before[key]) / seconds for key in before}
    return {
        "size": size,
        "met": met,
        "met_cpu": met_cpu,
        "memory_mib": memory - empty,
        "training": rates,
        "training_cpu": cpu / seconds,
        "told": told,
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))))
