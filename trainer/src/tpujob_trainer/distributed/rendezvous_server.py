"""The rendezvous server, on process 0: what is no process of this run is dropped, and no message names all processes.

Connections of the processes of this run stay open: they are the lines of `peer_monitor`.
"""

from __future__ import annotations

import logging
import secrets
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_contract.connections.line_server import Line, LineServer
from tpujob_trainer import errors
from tpujob_trainer.distributed.rendezvous_messages import Hello, Membership, disagreement, missing, to_line

logger = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
"""How often connected processes are sent a sign that the server still waits."""
DELIVERY_SECONDS = 30.0
"""For the others to read the membership, or why there is none."""
CLOSE_SECONDS = 5.0
"""For the others to close, once they have read why there is none."""

Met = tuple[Membership, dict[int, socket.socket]]
"""What everybody goes on with, and the open connections: of process 0 to all others, of these to process 0."""


class RendezvousServer(LineServer):
    """The processes that have connected so far; a context that closes every connection that it did not give away."""

    def __init__(self, listener: socket.socket, own: Hello, positions: Sequence[str]) -> None:
        super().__init__(listener, selectors.DefaultSelector(), len(positions))
        self._positions = positions
        self._own = own
        self._here: dict[int, Hello] = {0: own}
        self._disagreement: errors.ConfigurationError | None = None

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, deadline: float, limit_seconds: float) -> Met:
        """The membership, and the connection to each of the others."""
        next_alive = time.monotonic()
        logged = -1
        while True:
            try:
                if self._disagreement:
                    raise self._disagreement
                if len(self._here) == len(self._positions):
                    return self._admit(limit_seconds)
                if time.monotonic() >= deadline:
                    raise missing(self._positions, self._here, limit_seconds)
            except errors.TrainerError as error:
                self._tell(errors.to_dict(error))
                self._close_identified()
                raise
            if time.monotonic() >= next_alive:
                next_alive = time.monotonic() + ALIVE_SECONDS
                self._tell({"waiting": len(self._positions) - len(self._here)})
                if len(self._here) != logged:
                    logged = len(self._here)
                    logger.info("Waiting for processes: %d of %d are here", logged, len(self._positions))
            self.poll(max(min(next_alive, deadline) - time.monotonic(), 0))

    def hear(self, line: Line, text: bytes) -> str | None:
        """The hello of a process; nothing else may come before the membership."""
        if line.member is not None:
            return "it speaks out of turn"
        try:
            hello = Hello.parse(text)
        except ValueError:
            logger.warning("Dropped a connection to the coordinator's port that is not a process of this run")
            return "no hello"
        refused = self._refusal(hello)
        if refused:
            logger.warning("Refused process %d on host %s: %s", hello.process_id, hello.host, refused)
            self.send(line, to_line({"refused": refused}))
            return refused
        self.identify(line, hello.process_id)
        self._here[hello.process_id] = hello
        self._disagreement = self._disagreement or disagreement({0: self._own, hello.process_id: hello})
        return None

    def gone(self, line: Line, why: str) -> None:
        """A process that has left may come again."""
        if line.member is not None:
            self._here.pop(line.member, None)

    def _refusal(self, hello: Hello) -> str:
        if hello.run != self._own.run:
            return f"it belongs to {self._own.run}, this process to {hello.run}"
        if not 0 < hello.process_id < len(self._positions):
            return f"it expects processes 0 to {len(self._positions) - 1}"
        other = self._here.get(hello.process_id)
        if other is not None and other.nonce != hello.nonce:
            return f"there is a process {hello.process_id} already, on host {other.host}"
        return ""

    def _admit(self, limit_seconds: float) -> Met:
        membership = Membership(secrets.token_hex(4), tuple(self._here[i].host for i in range(len(self._positions))))
        self._tell(membership.to_values())
        self.deliver(DELIVERY_SECONDS)
        if len(self._here) < len(self._positions):
            # The others have their membership, and hear of this end by the line that closes.
            raise missing(self._positions, self._here, limit_seconds)
        return membership, self.release()

    def _tell(self, values: Mapping[str, Any]) -> None:
        self.send_all(to_line(values))

    def _close_identified(self) -> None:
        """Waits until the others have read and closed."""
        self.deliver(DELIVERY_SECONDS)
        until = time.monotonic() + CLOSE_SECONDS
        while len(self._here) > 1 and time.monotonic() < until:
            self.poll(0.2)
