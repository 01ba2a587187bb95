"""The rendezvous server, on process 0: one thread, non-blocking sockets; what is no process of this run is dropped.

Connections of the processes of this run stay open: they are the lines of `peer_monitor`. What a connection does not
take at once waits until it does. Nothing that is done for one connection looks at all others, and no message names all
processes: ten thousand of them meet here.
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
"""Connections without a hello, kept at once, beside one for each process that has yet to come."""
IDENTIFY_SECONDS = 10.0
"""For a hello to arrive."""
ALIVE_SECONDS = 1.0
"""How often connected processes are sent a sign that the server still waits."""
DELIVERY_SECONDS = 30.0
"""For the others to read the membership, or why there is none."""


@dataclasses.dataclass
class _Connection:
    sock: socket.socket
    since: float
    received: bytes = b""
    hello: Hello | None = None
    unsent: bytearray = dataclasses.field(default_factory=bytearray)


class RendezvousServer:
    """The processes that have connected so far; a context that closes every connection that it did not give away."""

    def __init__(self, listener: socket.socket, own: Hello, positions: Sequence[str]) -> None:
        self._positions = positions
        self._own = own
        self._connections: dict[socket.socket, _Connection] = {}
        self._here: dict[int, Hello] = {0: own}
        self._unsent: dict[socket.socket, _Connection] = {}
        self._disagreement: errors.ConfigurationError | None = None
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
            arrived = self._here
            try:
                if self._disagreement:
                    raise self._disagreement
                if len(arrived) == len(self._positions):
                    return self._admit(arrived, limit_seconds)
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

    def _admit(self, arrived: Mapping[int, Hello], limit_seconds: float) -> tuple[Membership, dict[int, socket.socket]]:
        membership = Membership(secrets.token_hex(4), tuple(arrived[i].host for i in range(len(self._positions))))
        self._tell(membership.to_values())
        self._deliver()
        if len(self._here) < len(self._positions):
            # The others have their membership, and hear of this end by the line that closes.
            raise missing(self._positions, self._here, limit_seconds)
        kept = {c.hello.process_id: c.sock for c in self._connections.values() if c.hello}
        for connection in kept.values():
            self._selector.unregister(connection)
            del self._connections[connection]
        return membership, kept

    def _tell(self, values: Mapping[str, Any]) -> None:
        line = to_line(values)
        for connection in [c for c in self._connections.values() if c.hello]:
            self._send(connection, line)

    def _send(self, connection: _Connection, line: bytes) -> None:
        connection.unsent += line
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        """Sends what the connection takes; the rest goes when it takes more."""
        try:
            while connection.unsent:
                del connection.unsent[: connection.sock.send(connection.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        if connection.unsent:
            self._unsent[connection.sock] = connection
        else:
            self._unsent.pop(connection.sock, None)
        writes = selectors.EVENT_WRITE if connection.unsent else 0
        self._selector.modify(connection.sock, selectors.EVENT_READ | writes)

    def _deliver(self) -> None:
        """Returns when everybody has been sent everything; who does not read it in time is dropped."""
        until = time.monotonic() + DELIVERY_SECONDS
        while self._unsent and time.monotonic() < until:
            self._poll(0.2)
        for connection in list(self._unsent.values()):
            self._drop(connection)

    def _close_identified(self) -> None:
        """Waits until the others have read and closed."""
        self._deliver()
        until = time.monotonic() + 5
        while len(self._here) > 1 and time.monotonic() < until:
            self._poll(0.2)

    def _poll(self, seconds: float) -> None:
        for key, events in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
                continue
            connection = self._connections.get(key.fileobj)  # type: ignore[call-overload]
            if connection and events & selectors.EVENT_WRITE:
                self._flush(connection)
            if connection and events & selectors.EVENT_READ and connection.sock in self._connections:
                self._receive(connection)

    def _accept(self) -> None:
        """All that wait to be accepted."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            unidentified = len(self._connections) - (len(self._here) - 1)
            if unidentified >= MAX_UNIDENTIFIED + len(self._positions) - len(self._here):
                sock.close()
                continue
            sock.setblocking(False)
            self._connections[sock] = _Connection(sock, time.monotonic())
            self._selector.register(sock, selectors.EVENT_READ)

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
        elif (other := self._here.get(hello.process_id)) and other.nonce != hello.nonce:
            refused = f"there is a process {hello.process_id} already, on host {other.host}"
        if refused:
            logger.warning("Refused process %d on host %s: %s", hello.process_id, hello.host, refused)
            self._send(connection, to_line({"refused": refused}))
            self._drop(connection)
        else:
            connection.hello = hello
            self._here[hello.process_id] = hello
            self._disagreement = self._disagreement or disagreement({0: self._own, hello.process_id: hello})

    def _drop_unidentified(self) -> None:
        now = time.monotonic()
        for connection in [
            c for c in self._connections.values() if c.hello is None and now - c.since > IDENTIFY_SECONDS
        ]:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock, None) is not None:
            self._unsent.pop(connection.sock, None)
            self._selector.unregister(connection.sock)
            connection.sock.close()
            if connection.hello is not None:
                self._here.pop(connection.hello.process_id, None)
