"""Simulates the launchers of more hosts than this machine could run: to launcher 0, one socket each.

    python -m benchmarks.launcher_clients FIRST

The environment is that of one host of the job; the hosts from FIRST on connect at once and send the launcher's hello.
Each sends heartbeats as a launcher does, and answers `restart` with `ready`, as if its program had ended at once. The
program prints a JSON line when all are connected, and another when all have been allowed to start again. Heartbeats are
not counted: their number depends on the duration.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections import deque

from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import BEAT, BYE, OVER, READY
from tpujob_launcher.peers.standing import Standing
from tpujob_launcher.peers.watch import BEATS, HEARTBEAT_SECONDS

BEAT_SECONDS = HEARTBEAT_SECONDS / BEATS


@dataclasses.dataclass(eq=False)
class _Launcher:
    sock: socket.socket
    standing: Standing
    received: bytes = b""
    ended_by_peer: bool = False
    """Whether its program was asked to end because another one failed."""


class Clients:
    """The launchers of all hosts from `first` on."""

    def __init__(self, process: DistributedProcess, first: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._beats: deque[tuple[float, _Launcher]] = deque()
        """The monotonic time of each launcher's next heartbeat, in order."""
        self._first = first
        self._process = process
        self.allowed = 0
        self.told_at = self.allowed_at = 0.0
        self.messages = self.bytes = 0

    def connect(self) -> None:
        """Connects all launchers."""
        kind, values = messages.hello(self._process, host="simulated")
        for host in range(self._first, self._process.num_processes):
            sock = socket.create_connection(("127.0.0.1", self._process.launcher_port), timeout=60)
            launcher = _Launcher(sock, Standing(host))
            self._send(launcher, (kind, {**values, "process": host}))
            self._selector.register(sock, selectors.EVENT_READ, launcher)
            self._beats.append((time.monotonic() + BEAT_SECONDS, launcher))

    def turn(self) -> None:
        """Handles received messages, and sends answers and heartbeats that are due."""
        for key, _ in self._selector.select(max(0.0, self._beats[0][0] - time.monotonic())):
            launcher: _Launcher = key.data
            heard = launcher.sock.recv(2**16)
            if not heard:
                raise SystemExit("launcher 0 closed a connection")
            *whole, launcher.received = (launcher.received + heard).split(b"\n")
            for line in whole:
                self._hear(launcher, line)
        while self._beats[0][0] <= time.monotonic():
            at, launcher = self._beats.popleft()
            self._send(launcher, (BEAT, {}))
            self._beats.append((at + BEAT_SECONDS, launcher))

    def _hear(self, launcher: _Launcher, line: bytes) -> None:
        message, standing = messages.parse(line), launcher.standing
        assert message is not None
        self._count(message, len(line) + 1)
        if message[0] in (OVER, BYE):
            raise SystemExit(f"launcher 0 said {message}")
        announced = standing.announced
        standing.take(message)
        if standing.has_to_end and not launcher.ended_by_peer:
            launcher.ended_by_peer = True
            self.told_at = time.time()
        if standing.announced > announced and standing.allowed <= announced:
            self._send(launcher, (READY, {"attempt": standing.announced}))
        if standing.allowed > standing.attempt:
            standing.begin(standing.allowed)
            self.allowed += 1
            self.allowed_at = time.time()

    def _send(self, launcher: _Launcher, message: messages.Message) -> None:
        line = messages.to_line(message)
        launcher.sock.sendall(line)
        self._count(message, len(line))

    def _count(self, message: messages.Message, size: int) -> None:
        if message[0] != BEAT:
            self.messages += 1
            self.bytes += size


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = read_environment(os.environ)
    assert isinstance(process, DistributedProcess)
    first = int(sys.argv[1])
    clients = Clients(process, first)
    clients.connect()
    print(json.dumps({}), flush=True)
    while clients.allowed < process.num_processes - first:
        clients.turn()
    counts = {"messages": clients.messages, "bytes": clients.bytes}
    print(json.dumps({"told_at": clients.told_at, "allowed_at": clients.allowed_at, **counts}), flush=True)


if __name__ == "__main__":
    main()
