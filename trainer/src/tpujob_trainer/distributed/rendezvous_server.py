"""The rendezvous server, on process 0: one thread, non-blocking sockets; what is no process of this run is dropped.

Connections of the processes of this run stay open: they are the lines of `peer_monitor`.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_trainer import errors
from tpujob_trainer.distributed.rendezvous_messages import Hello, Membership, disagreement, missing, to_line

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 1024
MAX_UNIDENTIFIED = 64
"""Connections without a hello, kept at once."""
IDENTIFY_SECONDS = 10.0
"""For a hello to arrive."""
ALIVE_SECONDS = 1.0
"""How often connected processes are sent a sign that the server still waits."""


@dataclasses.dataclass
class _Connection:
    sock: socket.socket
    since: float
    received: bytes = b""
    hello: Hello | None = None


class RendezvousServer:
    """The processes that have connected so far; a context that closes every connection that it did not give away."""

    def __init__(self, listener: socket.socket, own: Hello, positions: Sequence[str]) -> None:
        self._positions = positions
        self._own = own
        self._connections: dict[socket.socket, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()

    def wait(self, deadline: float, limit_seconds: float) -> tuple[Membership, dict[int, socket.socket]]:
        """The membership, and the connection to each of the others."""
        next_alive = time.monotonic()
        logged = -1
        while True:
            arrived = self._arrived()
            try:
                if problem := disagreement(arrived):
                    raise problem
                if len(arrived) == len(self._positions):
                    return self._admit(arrived)
                if time.monotonic() >= deadline:
                    raise missing(self._positions, arrived, limit_seconds)
            except errors.TrainerError as error:
                self._tell(errors.to_dict(error))
                self._close_identified()
                raise
            if time.monotonic() >= next_alive:
                next_alive = time.monotonic() + ALIVE_SECONDS
                self._tell({"waiting": len(self._positions) - len(arrived)})
                self._drop_unidentified()
                if len(arrived) != logged:
                    logged = len(arrived)
                    logger.info("Waiting for processes: %d of %d are here", logged, len(self._positions))
            self._poll(max(min(next_alive, deadline) - time.monotonic(), 0))

    def _arrived(self) -> dict[int, Hello]:
        return {0: self._own} | {c.hello.process_id: c.hello for c in self._connections.values() if c.hello}

    def _admit(self, arrived: Mapping[int, Hello]) -> tuple[Membership, dict[int, socket.socket]]:
        membership = Membership(secrets.token_hex(4), tuple(arrived[i].host for i in range(len(self._positions))))
        self._tell(dataclasses.asdict(membership))
        kept = {c.hello.process_id: c.sock for c in self._connections.values() if c.hello}
        for connection in kept.values():
            self._selector.unregister(connection)
            del self._connections[connection]
        return membership, kept

    def _tell(self, values: Mapping[str, Any]) -> None:
        for connection in [c for c in self._connections.values() if c.hello]:
            self._send(connection, values)

    def _send(self, connection: _Connection, values: Mapping[str, Any]) -> None:
        try:
            connection.sock.sendall(to_line(values))
        except OSError:
            self._drop(connection)

    def _close_identified(self) -> None:
        """Waits until the others have read and closed."""
        until = time.monotonic() + 5
        while any(c.hello for c in self._connections.values()) and time.monotonic() < until:
            self._poll(0.2)

    def _poll(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._receive(self._connections[key.fileobj])  # type: ignore[index]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if sum(c.hello is None for c in self._connections.values()) >= MAX_UNIDENTIFIED:
            connection.close()
            return
        connection.setblocking(False)
        self._connections[connection] = _Connection(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.received += data
        if not data or len(connection.received) > MAX_LINE_BYTES or connection.hello is not None:
            self._drop(connection)
        elif connection.received.endswith(b"\n"):
            self._identify(connection)

    def _identify(self, connection: _Connection) -> None:
        try:
            hello = Hello.parse(connection.received)
        except ValueError:
            logger.warning("Dropped a connection to the coordinator's port that is not a process of this run")
            self._drop(connection)
            return
        refused = None
        if hello.run != self._own.run:
            refused = f"it belongs to {self._own.run}, this process to {hello.run}"
        elif not 0 < hello.process_id < len(self._positions):
            refused = f"it expects processes 0 to {len(self._positions) - 1}"
        elif (other := self._arrived().get(hello.process_id)) and other.nonce != hello.nonce:
            refused = f"there is a process {hello.process_id} already, on host {other.host}"
        if refused:
            logger.warning("Refused process %d on host %s: %s", hello.process_id, hello.host, refused)
            self._send(connection, {"refused": refused})
            self._drop(connection)
        else:
            connection.hello = hello

    def _drop_unidentified(self) -> None:
        now = time.monotonic()
        for connection in [
            c for c in self._connections.values() if c.hello is None and now - c.since > IDENTIFY_SECONDS
        ]:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock, None) is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()
