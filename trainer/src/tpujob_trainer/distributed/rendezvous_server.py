"""Process 0's side of the meeting: one thread, non-blocking sockets; what is no process of this run is dropped.

The connections of those who have met stay open: they are the lines of `peer_monitor`.
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
from tpujob_trainer.distributed.rendezvous_messages import Hello, Meeting, disagreement, missing, to_line

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 1024
MAX_STRANGERS = 64
"""Connections that have not said who they are, kept at once."""
STRANGER_SECONDS = 10.0
"""Time to say who one is."""
ALIVE_SECONDS = 1.0
"""How often those present are told that the waiting goes on."""


@dataclasses.dataclass
class _Guest:
    connection: socket.socket
    since: float
    heard: bytes = b""
    hello: Hello | None = None


class Reception:
    """Everybody who has come so far; a context that closes at its end all connections that it did not give away."""

    def __init__(self, listener: socket.socket, own: Hello, places: Sequence[str]) -> None:
        self._places = places
        self._own = own
        self._guests: dict[socket.socket, _Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> Reception:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in list(self._guests.values()):
            self._drop(guest)
        self._selector.close()

    def wait(self, deadline: float, limit_seconds: float) -> tuple[Meeting, dict[int, socket.socket]]:
        """The meeting, and the connection to each of the others."""
        next_alive = time.monotonic()
        said = -1
        while True:
            arrived = self._arrived()
            try:
                if problem := disagreement(arrived):
                    raise problem
                if len(arrived) == len(self._places):
                    return self._let_go(arrived)
                if time.monotonic() >= deadline:
                    raise missing(self._places, arrived, limit_seconds)
            except errors.TrainerError as error:
                self._tell(errors.to_dict(error))
                self._see_off()
                raise
            if time.monotonic() >= next_alive:
                next_alive = time.monotonic() + ALIVE_SECONDS
                self._tell({"waiting": len(self._places) - len(arrived)})
                self._drop_strangers()
                if len(arrived) != said:
                    said = len(arrived)
                    logger.info("Waiting for processes: %d of %d are here", said, len(self._places))
            self._turn(max(min(next_alive, deadline) - time.monotonic(), 0))

    def _arrived(self) -> dict[int, Hello]:
        return {0: self._own} | {g.hello.process_id: g.hello for g in self._guests.values() if g.hello}

    def _let_go(self, arrived: Mapping[int, Hello]) -> tuple[Meeting, dict[int, socket.socket]]:
        meeting = Meeting(secrets.token_hex(4), tuple(arrived[i].host for i in range(len(self._places))))
        self._tell(dataclasses.asdict(meeting))
        kept = {g.hello.process_id: g.connection for g in self._guests.values() if g.hello}
        for connection in kept.values():
            self._selector.unregister(connection)
            del self._guests[connection]
        return meeting, kept

    def _tell(self, values: Mapping[str, Any]) -> None:
        for guest in [g for g in self._guests.values() if g.hello]:
            self._send(guest, values)

    def _send(self, guest: _Guest, values: Mapping[str, Any]) -> None:
        try:
            guest.connection.sendall(to_line(values))
        except OSError:
            self._drop(guest)

    def _see_off(self) -> None:
        """Waits until the others have read and closed."""
        until = time.monotonic() + 5
        while any(g.hello for g in self._guests.values()) and time.monotonic() < until:
            self._turn(0.2)

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._hear(self._guests[key.fileobj])  # type: ignore[index]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if sum(g.hello is None for g in self._guests.values()) >= MAX_STRANGERS:
            connection.close()
            return
        connection.setblocking(False)
        self._guests[connection] = _Guest(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, guest: _Guest) -> None:
        try:
            heard = guest.connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        guest.heard += heard
        if not heard or len(guest.heard) > MAX_LINE_BYTES or guest.hello is not None:
            self._drop(guest)
        elif guest.heard.endswith(b"\n"):
            self._introduce(guest)

    def _introduce(self, guest: _Guest) -> None:
        try:
            hello = Hello.parse(guest.heard)
        except ValueError:
            logger.warning("Dropped a connection to the coordinator's port that is not a process of this run")
            self._drop(guest)
            return
        refused = None
        if hello.run != self._own.run:
            refused = f"it belongs to {self._own.run}, this process to {hello.run}"
        elif not 0 < hello.process_id < len(self._places):
            refused = f"it expects processes 0 to {len(self._places) - 1}"
        elif (other := self._arrived().get(hello.process_id)) and other.nonce != hello.nonce:
            refused = f"there is a process {hello.process_id} already, on host {other.host}"
        if refused:
            logger.warning("Refused process %d on host %s: %s", hello.process_id, hello.host, refused)
            self._send(guest, {"refused": refused})
            self._drop(guest)
        else:
            guest.hello = hello

    def _drop_strangers(self) -> None:
        now = time.monotonic()
        for guest in [g for g in self._guests.values() if g.hello is None and now - g.since > STRANGER_SECONDS]:
            self._drop(guest)

    def _drop(self, guest: _Guest) -> None:
        if self._guests.pop(guest.connection, None) is not None:
            self._selector.unregister(guest.connection)
            guest.connection.close()
