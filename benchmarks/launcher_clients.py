"""Simulates the launchers of more hosts than this machine could run: to launcher 0, one socket each.

    python -m benchmarks.launcher_clients FIRST HEARTBEAT_SECONDS TRAINING_SECONDS

The environment is that of one host of the job; the hosts from FIRST on connect at once, send the launcher's hello and
that their programs wait for the others, and from then on the progress of these as often as trainers report it. They
answer the end of an attempt with `ready`, as if their programs had ended at once. The program prints JSON lines: when
all programs have met; at the begin and at the end of TRAINING_SECONDS; and when all have been allowed to start again.
Each has the messages and bytes so far, in both directions, by kind.
"""

import dataclasses
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable

from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import BYE, JOINED, READY, ROUND
from tpujob_launcher.peers.messages import PROGRESS as PROGRESS_REPORT
from tpujob_launcher.peers.state import State
from tpujob_launcher.peers.timing import HEARTBEATS

PROGRESS = dataclasses.asdict(ProgressState("training", 1200, 1234, 1.5, "loop.py:123 in run_step"))


def about_program(heartbeat_seconds: float) -> dict[str, object]:
    """What a trainer says of itself; versions and hash are as long as real ones."""
    versions = dict.fromkeys(("python", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "image"), "1.2.3")
    return {"heartbeat_seconds": heartbeat_seconds, "configuration": "c0ffee" * 8, "versions": versions}


@dataclasses.dataclass(eq=False)
class _Launcher:
    sock: socket.socket
    state: State
    received: bytes = b""
    has_met: bool = False
    ended_by_peer: bool = False
    """Whether its program was asked to end because another one failed."""


class Clients:
    """The launchers of all hosts from `first` on."""

    def __init__(self, process: DistributedProcess, first: int, heartbeat_seconds: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._interval = heartbeat_seconds / HEARTBEATS
        self._beats: deque[tuple[float, _Launcher]] = deque()
        """The monotonic time of each launcher's next report of progress, in order."""
        self._first, self._process = first, process
        self._about = about_program(heartbeat_seconds)
        self.size = process.num_processes - first
        self.met = self.allowed = 0
        self.told_at = self.allowed_at = 0.0
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def connect(self) -> None:
        """Connects all launchers, whose programs wait for the others."""
        kind, values = messages.hello(self._process, host="simulated")
        for host in range(self._first, self._process.num_processes):
            sock = socket.create_connection(("127.0.0.1", self._process.launcher_port), timeout=60)
            launcher = _Launcher(sock, State(host))
            self._send(launcher, (kind, {**values, "process": host}))
            self._send(launcher, (JOINED, {"attempt": 0, **self._about}))
            self._selector.register(sock, selectors.EVENT_READ, launcher)

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        """Handles received messages, and sends answers and reports that are due, until a condition is true."""
        while not is_done():
            for key, _ in self._selector.select(0.02):
                launcher: _Launcher = key.data
                heard = launcher.sock.recv(2**16)
                if not heard:
                    raise SystemExit("launcher 0 closed a connection")
                *whole, launcher.received = (launcher.received + heard).split(b"\n")
                for line in whole:
                    self._hear(launcher, line)
            while self._beats and self._beats[0][0] <= time.monotonic():
                at, launcher = self._beats.popleft()
                self._send(launcher, (PROGRESS_REPORT, {"attempt": launcher.state.attempt, "state": PROGRESS}))
                self._beats.append((at + self._interval, launcher))

    def turn_for(self, seconds: float) -> None:
        """Does the same for some seconds."""
        until = time.monotonic() + seconds
        self.turn_until(lambda: time.monotonic() >= until)

    def answer(self, **found: float) -> None:
        """Prints what has come about so far."""
        print(json.dumps({**found, "messages": self.messages, "bytes": self.bytes}), flush=True)

    def _hear(self, launcher: _Launcher, line: bytes) -> None:
        message, state = messages.parse(line), launcher.state
        assert message is not None
        self._count(message, len(line) + 1)
        announced = state.announced
        if message[0] == ROUND:
            state.update(message[1])
        if message[0] == BYE or state.over is not None:
            raise SystemExit(f"launcher 0 sent {message}")
        if state.met is not None and not launcher.has_met:
            launcher.has_met = True
            self.met += 1
            # Reports at different times, as in reality.
            self._beats.append((time.monotonic() + self._interval * self.met / self.size, launcher))
        if state.has_to_end and not launcher.ended_by_peer:
            launcher.ended_by_peer = True
            self.told_at = time.time()
        if state.announced > announced and state.allowed <= announced:
            self._send(launcher, (READY, {"attempt": state.announced}))
        if state.allowed > state.attempt:
            state.begin(state.allowed)
            self.allowed += 1
            self.allowed_at = time.time()

    def _send(self, launcher: _Launcher, message: messages.Message) -> None:
        line = messages.to_line(message)
        launcher.sock.sendall(line)
        self._count(message, len(line))

    def _count(self, message: messages.Message, size: int) -> None:
        self.messages[message[0]] += 1
        self.bytes[message[0]] += size


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = read_environment(os.environ)
    assert isinstance(process, DistributedProcess)
    first, heartbeat_seconds, training_seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    clients = Clients(process, first, heartbeat_seconds)
    began = time.monotonic()
    clients.connect()
    clients.turn_until(lambda: clients.met == clients.size)
    clients.answer(seconds=time.monotonic() - began)
    # The meeting is a burst; the measurement starts when each has reported once.
    clients.turn_for(heartbeat_seconds / HEARTBEATS if training_seconds else 0.0)
    clients.answer()
    clients.turn_for(training_seconds)
    clients.answer()
    clients.turn_until(lambda: clients.allowed == clients.size)
    clients.answer(told_at=clients.told_at, allowed_at=clients.allowed_at)


if __name__ == "__main__":
    main()
