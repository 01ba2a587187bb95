"""Launchers of hosts that this machine cannot bear, as far as launcher 0 can tell: one socket each.

    python -m benchmarks.launcher_clients FIRST

The environment is that of one host of the job; the hosts from FIRST on come at once and say the launcher's own hello.
Each answers `restart` with `ready`, as if its program had ended at once. The first answer on standard output, a JSON
line, comes when all are connected; the second when all have been allowed to start again.
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

from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import GO, READY, RESTART
from tpujob_launcher.peers.standing import Standing


@dataclasses.dataclass(eq=False)
class _Launcher:
    sock: socket.socket
    standing: Standing = dataclasses.field(default_factory=Standing)
    received: bytes = b""


class Clients:
    """The launchers of all hosts from one on."""

    def __init__(self, process: DistributedProcess, first: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._first = first
        self._process = process
        self.told = self.allowed = 0
        self.told_at = self.allowed_at = 0.0
        self.messages = self.bytes = 0

    def connect(self) -> None:
        """All come."""
        kind, values = messages.hello(self._process)
        for host in range(self._first, self._process.num_processes):
            sock = socket.create_connection(("127.0.0.1", self._process.launcher_port), timeout=60)
            self._send(sock, messages.to_line((kind, {**values, "process": host})))
            self._selector.register(sock, selectors.EVENT_READ, _Launcher(sock))

    def turn(self) -> None:
        """Hears what has come, and answers."""
        for key, _ in self._selector.select(1.0):
            launcher: _Launcher = key.data
            heard = launcher.sock.recv(2**16)
            if not heard:
                raise SystemExit("launcher 0 closed a connection")
            self.bytes += len(heard)
            *whole, launcher.received = (launcher.received + heard).split(b"\n")
            for line in whole:
                self._hear(launcher, line)

    def _hear(self, launcher: _Launcher, line: bytes) -> None:
        message = messages.parse(line)
        assert message is not None
        self.messages += 1
        launcher.standing.take(message)
        if message[0] == RESTART:
            self.told += 1
            self.told_at = time.time()
            self._send(launcher.sock, messages.to_line((READY, {"attempt": launcher.standing.announced})))
        elif message[0] == GO:
            self.allowed += 1
            self.allowed_at = time.time()
        else:
            raise SystemExit(f"launcher 0 said {message}")

    def _send(self, sock: socket.socket, line: bytes) -> None:
        sock.sendall(line)
        self.messages += 1
        self.bytes += len(line)


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
