"""Simulates all launchers of a run except launcher 0: one socket each, with one epoll for all of them.

    python -m benchmarks.start_clients PORT SIZE HEARTBEAT_SECONDS

They connect at once, send the launcher's hello and the message that their programs have started, and then the progress
of these as often as trainers report it, each at a different time.
Commands are lines on standard input, answers are JSON lines on standard output; the first answer needs no command, and
is printed when all have received their membership:

- `count`: messages and bytes so far, in both directions
- `kill`: closes one connection; answers when all others have been notified, or after a minute
"""

from __future__ import annotations

import dataclasses
import errno
import heapq
import json
import os
import select
import socket
import sys
import time
from collections import deque

from tests.harness.launched import JOB
from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.client import RETRY_SECONDS
from tpujob_launcher.peers.messages import HELLO, HERE, STATE, Message
from tpujob_launcher.peers.watch import BEATS

TOLD_SECONDS = 60.0
"""The longest wait until the last process is notified of a death."""


def process_of(number: int, size: int, port: int) -> DistributedProcess:
    """Process `number` of `size`, with launcher 0 at a port of this machine."""
    place = {"TPUJOB_SLICE": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": str(size), "TPUJOB_HOST": str(number)}
    there = {"TPUJOB_COORDINATOR": "127.0.0.1:1", "TPUJOB_LAUNCHER_PORT": str(port)}
    found = read_environment({**JOB, **place, **there})
    assert isinstance(found, DistributedProcess)
    return found


def here(heartbeat_seconds: float) -> Message:
    """The message of a trainer that has started; versions and hash are as long as real ones."""
    versions = dict.fromkeys(("python", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "image"), "1.2.3")
    said = {"heartbeat_seconds": heartbeat_seconds, "configuration": "c0ffee" * 8, "versions": versions}
    return HERE, {"attempt": 0, **said}


def host_of(process: int) -> str:
    """A host name of the length that GKE gives to nodes."""
    return f"gke-cluster-training-pool-{process // 16:04d}-{process * 7919 % 65536:04x}-slice-{process // 16}"


def state() -> Message:
    """The message about a trainer's progress."""
    values = dataclasses.asdict(ProgressState("training", 1200, 1234, 1.5, "loop.py:123 in run_step"))
    return STATE, {"attempt": 0, "state": values}


@dataclasses.dataclass(slots=True, eq=False)
class _Client:
    number: int
    sock: socket.socket | None = None
    is_connected: bool = False
    hears_membership: bool = False
    has_met: bool = False
    is_told: bool = False


class Clients:
    """Processes 1 to size - 1."""

    def __init__(self, port: int, size: int, heartbeat_seconds: float) -> None:
        self._address = ("127.0.0.1", port)
        self._interval = heartbeat_seconds / BEATS
        self._beat = messages.to_line(state())
        self._here = messages.to_line(here(heartbeat_seconds))
        _, self._hello = messages.hello(process_of(0, size, port))
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Client] = {}
        self._clients = [_Client(number) for number in range(1, size)]
        self._retries: deque[tuple[float, _Client]] = deque()
        self._beats: list[tuple[float, int, _Client]] = []
        self.counts = {"sent_messages": 0, "sent_bytes": 0, "heard_messages": 0, "heard_bytes": 0}
        self.met = 0
        self.told = 0

    def come(self) -> None:
        """Connects all clients."""
        for client in self._clients:
            self._connect(client)
            if client.number % 200 == 0:
                self.turn(0)

    def kill(self) -> None:
        """Closes the connection of one client, as the kernel does when a process is killed."""
        victim = self._clients.pop()
        assert victim.sock is not None
        del self._by_fd[victim.sock.fileno()]
        victim.sock.close()

    @property
    def all_have_met(self) -> bool:
        """Whether each client has received its membership."""
        return self.met == len(self._clients)

    @property
    def all_are_told(self) -> bool:
        """Whether each client has been notified why the run ends."""
        return self.told == len(self._clients)

    def turn(self, seconds: float) -> None:
        """Receives messages for at most `seconds`, and sends those that are due."""
        for fd, _ in self._epoll.poll(seconds):
            if (client := self._by_fd.get(fd)) is not None:
                self._serve(client)
        now = time.monotonic()
        while self._retries and self._retries[0][0] <= now:
            self._connect(self._retries.popleft()[1])
        while self._beats and self._beats[0][0] <= now:
            due, _, client = heapq.heappop(self._beats)
            if client.sock is not None and client.sock.fileno() >= 0:
                self._send(client.sock, self._beat)
                heapq.heappush(self._beats, (due + self._interval, client.number, client))

    def _connect(self, client: _Client) -> None:
        client.sock, client.is_connected = socket.socket(), False
        client.sock.setblocking(False)
        self._by_fd[client.sock.fileno()] = client
        problem = client.sock.connect_ex(self._address)
        if problem not in {0, errno.EINPROGRESS}:
            self._retry(client)
            return
        self._epoll.register(client.sock, select.EPOLLIN | select.EPOLLOUT)

    def _retry(self, client: _Client) -> None:
        assert client.sock is not None
        del self._by_fd[client.sock.fileno()]
        client.sock.close()
        self._retries.append((time.monotonic() + RETRY_SECONDS, client))

    def _send(self, sock: socket.socket, text: bytes) -> None:
        self.counts["sent_bytes"] += sock.send(text)
        self.counts["sent_messages"] += 1

    def _serve(self, client: _Client) -> None:
        assert client.sock is not None
        try:
            if not client.is_connected:
                if client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._retry(client)
                    return
                client.is_connected = True
                self._epoll.modify(client.sock, select.EPOLLIN)
                number = client.number
                hello = messages.to_line((HELLO, {**self._hello, "process": number, "host": host_of(number)}))
                self._send(client.sock, hello + self._here)
                return
            heard = client.sock.recv(2**18)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            if client.has_met:
                raise SystemExit(f"process 0 closed the connection of process {client.number}")
            self._retry(client)
            return
        self.counts["heard_bytes"] += len(heard)
        self.counts["heard_messages"] += heard.count(b"\n")
        self._hear(client, heard)

    def _hear(self, client: _Client, heard: bytes) -> None:
        # Not parsed, to save processor time: in reality, each launcher parses its messages on its own machine.
        if not client.has_met:
            client.hears_membership = client.hears_membership or b'"met"' in heard
            if client.hears_membership and heard.endswith(b"\n"):
                client.has_met = True
                self.met += 1
                # The first beat at once, as in reality; then at different times.
                assert client.sock is not None
                self._send(client.sock, self._beat)
                phase = client.number * 0.618034 % 1
                heapq.heappush(self._beats, (time.monotonic() + phase * self._interval, client.number, client))
        if not client.is_told and b'"end"' in heard:
            client.is_told = True
            self.told += 1


def main() -> None:
    port, size, heartbeat_seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    clients = Clients(port, size, heartbeat_seconds)
    os.set_blocking(sys.stdin.fileno(), False)
    began = time.monotonic()
    clients.come()
    while not clients.all_have_met:
        clients.turn(0.1)
    answer = {"seconds": time.monotonic() - began, **clients.counts}
    while True:
        print(json.dumps(answer), flush=True)
        while not (command := (sys.stdin.readline() or "").strip()):
            clients.turn(0.02)
        if command == "kill":
            killed = time.monotonic()
            clients.kill()
            while not clients.all_are_told and time.monotonic() < killed + TOLD_SECONDS:
                clients.turn(0.02)
            seconds = time.monotonic() - killed
            print(json.dumps({"seconds": seconds, "told": clients.told}), flush=True)
            return
        answer = dict(clients.counts)


if __name__ == "__main__":
    main()
