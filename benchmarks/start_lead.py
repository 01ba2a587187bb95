"""Launcher 0 among simulated launchers: the meeting of all, and what it watches, measured from within.

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


class Lead:
    """Launcher 0, whose program says what a trainer says."""

    def __init__(self, size: int, port: int, heartbeat_seconds: float) -> None:
        self.server = Server(process_of(0, size, port), port)
        self._signals = SignalQueue()
        self._signals.__enter__()
        self._beat_at, self._interval = 0.0, heartbeat_seconds / BEATS
        said = here(heartbeat_seconds)
        # As if its program had said it on its own socket.
        self.server._here = dict(said[1])  # noqa: SLF001
        self.server.mention(said)

    def work(self, is_done: Callable[[], bool]) -> None:
        """What the supervision of a program does, until then."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                raise SystemExit(f"not done within {LIMIT_SECONDS:.0f} s")
            seconds = self.server.seconds()
            self._signals.wait(0.1 if seconds is None else min(0.1, seconds), self.server)
            self.server.step()
            if self.server.standing.met is not None and time.monotonic() >= self._beat_at:
                self._beat_at = time.monotonic() + self._interval
                self.server.mention(state())

    def work_seconds(self, seconds: float) -> None:
        """The same for so long."""
        until = time.monotonic() + seconds
        self.work(lambda: time.monotonic() >= until)

    def work_for(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The same until another thread has an answer."""
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        self.work(lambda: not thread.is_alive())
        return found[0]


def measure(size: int, heartbeat_seconds: float, training_seconds: float) -> dict[str, Any]:
    """Seconds, messages, bytes and memory of one start, some training, and one death."""
    port = free_ports(1)[0]
    empty = resident_mib()
    lead = Lead(size, port, heartbeat_seconds)
    clients = Clients(port, size, heartbeat_seconds)
    try:
        cpu = time.process_time()
        lead.work(lambda: lead.server.standing.met is not None)
        met_cpu = time.process_time() - cpu
        met = lead.work_for(clients.answer)
        # The beats at the beginning are a burst; what follows is measured from a whole interval to another.
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
