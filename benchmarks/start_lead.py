"""Measures launcher 0 among simulated launchers, in its own process: the rendezvous, heartbeats, and a death.

    python -m benchmarks.start_lead SIZE HEARTBEAT_SECONDS TRAINING_SECONDS

Prints one JSON object. `benchmarks.start` runs it in a new process for each size, so that the memory is of this size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.start_clients import here, process_of, state
from tools.localcluster.processes import free_ports
from tpujob_launcher.child.signals import SignalQueue
from tpujob_launcher.peers.server import Server
from tpujob_launcher.peers.watch import BEATS

LIMIT_SECONDS = 300.0


def resident_mib() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


class Clients:
    """The simulated launchers, in another process."""

    def __init__(self, port: int, size: int, heartbeat_seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.start_clients", str(port), str(size), str(heartbeat_seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self) -> dict[str, Any]:
        """Waits for their next answer; returns it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the simulated processes ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, command: str) -> dict[str, Any]:
        """Sends a command; returns their answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Lead:
    """Launcher 0, with the messages of a trainer as its program."""

    def __init__(self, size: int, port: int, heartbeat_seconds: float) -> None:
        self.server = Server(process_of(0, size, port), port)
        self._signals = SignalQueue()
        self._signals.__enter__()
        self._beat_at, self._interval = 0.0, heartbeat_seconds / BEATS
        said = here(heartbeat_seconds)
        # As if its program had sent it on its socket.
        self.server._program_hello = dict(said[1])  # noqa: SLF001
        self.server.report(said)

    def work(self, is_done: Callable[[], bool]) -> None:
        """Does the work of supervising a program until a condition is true."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                raise SystemExit(f"not done within {LIMIT_SECONDS:.0f} s")
            seconds = self.server.seconds()
            self._signals.wait(0.1 if seconds is None else min(0.1, seconds), self.server)
            self.server.step()
            if self.server.standing.met is not None and time.monotonic() >= self._beat_at:
                self._beat_at = time.monotonic() + self._interval
                self.server.report(state())

    def work_seconds(self, seconds: float) -> None:
        """Does the same for some seconds."""
        until = time.monotonic() + seconds
        self.work(lambda: time.monotonic() >= until)

    def work_for(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Does the same until a call in another thread returns; returns its result."""
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        self.work(lambda: not thread.is_alive())
        return found[0]


def measure(size: int, heartbeat_seconds: float, training_seconds: float) -> dict[str, Any]:
    """Times, messages, bytes and memory of one start, some training, and one death."""
    port = free_ports(1)[0]
    empty = resident_mib()
    lead = Lead(size, port, heartbeat_seconds)
    clients = Clients(port, size, heartbeat_seconds)
    try:
        cpu = time.process_time()
        lead.work(lambda: lead.server.standing.met is not None)
        met_cpu = time.process_time() - cpu
        met = lead.work_for(clients.answer)
        # The first beats are a burst; the measurement starts one whole interval later.
        lead.work_seconds(heartbeat_seconds / BEATS)
        before, cpu, began = lead.work_for(lambda: clients.ask("count")), time.process_time(), time.monotonic()
        lead.work_seconds(training_seconds)
        after, cpu, seconds = (
            lead.work_for(lambda: clients.ask("count")), time.process_time() - cpu, time.monotonic() - began
        )  # fmt: skip
        memory = resident_mib()
        if lead.server.standing.first is not None:
            raise SystemExit("a process was lost before one was killed")
        told = lead.work_for(lambda: clients.ask("kill"))
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
