"""Launcher 0: hears all launchers of the job, and tells all what it decides. No thread, nothing that blocks.

What is no launcher of this job (another job's pod, a scanner, garbage, slow lines) is dropped and logged once; it
neither ends nor delays anything.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from tpujob_contract import ports
from tpujob_contract.environment import DistributedProcess
from tpujob_launcher.peers import messages, open_files
from tpujob_launcher.peers.decisions import Decisions
from tpujob_launcher.peers.messages import ENDED, FINISHED, HELLO, MAX_LINE_BYTES, READY, STOPPING, Message
from tpujob_launcher.peers.peers import Peers

logger = logging.getLogger(__name__)

MAX_UNIDENTIFIED = 64
"""Connections without a hello, kept at once, beside one for each launcher that has yet to come."""
IDENTIFY_SECONDS = 10.0
"""For a hello to arrive."""


@dataclass
class _Line:
    sock: socket.socket
    since: float
    process: Optional[int] = None
    received: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)


class Server(Peers):
    """All launchers of a job, seen from launcher 0."""

    def __init__(self, process: DistributedProcess, limit: int, port: int) -> None:
        """Listens.

        Args:
            process: This launcher's.
            limit: How often all may start again in these containers.
            port: Where to listen.

        Raises:
            OSError: The port cannot be had.
        """
        super().__init__()
        self._process = process
        self._decisions = Decisions(process.num_processes, limit)
        self._lines: Dict[int, _Line] = {}
        self._expected = messages.hello(process)[1]
        self._has_warned = False
        self._listener = ports.listen(process.coordinator.rpartition(":")[0], port)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._rest = open_files.Rest()
        open_files.allow(process.num_processes)

    def close(self) -> None:
        """Closes all connections."""
        for line in list(self._lines.values()):
            line.sock.close()
        self._listener.close()
        self._selector.close()

    def seconds(self) -> Optional[float]:
        """Until something is due; None: nothing is."""
        due = (self._decisions.seconds(time.monotonic()), self._rest.seconds())
        return min((each for each in due if each is not None), default=None)

    def step(self) -> None:
        """Handles what has come, and what is due."""
        if self._rest.is_over():
            self._selector.register(self._listener, selectors.EVENT_READ)
        for key, events in self._selector.select(0):
            if key.fileobj is self._listener:
                self._accept()
                continue
            line = self._lines.get(key.fd)
            if line is None or line is not key.data:
                continue  # dropped meanwhile
            if events & selectors.EVENT_WRITE:
                self._flush(line)
            if events & selectors.EVENT_READ:
                self._receive(line)
        self._tell(self._decisions.look(time.monotonic()))

    def say(self, message: Message) -> None:
        """What happens to this launcher's own program."""
        self._hear(0, message)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in open_files.EXHAUSTED:
                    self._selector.unregister(self._listener)
                    self._rest.begin(error)
                return
            self._drop_unidentified()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            line = _Line(sock, time.monotonic())
            self._lines[sock.fileno()] = line
            self._selector.register(sock, selectors.EVENT_READ, line)

    def _drop_unidentified(self) -> None:
        """Keeps room for launchers: who says nothing goes, the oldest first where there are too many."""
        for line in [line for line in self._lines.values() if line.process is None]:
            self._receive(line)  # its hello may be here already
        silent = [line for line in self._lines.values() if line.process is None]
        room = MAX_UNIDENTIFIED + self._process.num_processes - (len(self._lines) - len(silent))
        now = time.monotonic()
        for number, line in enumerate(silent):
            if now - line.since > IDENTIFY_SECONDS or len(silent) - number >= room:
                self._drop(line, "no hello")

    def _receive(self, line: _Line) -> None:
        try:
            heard = line.sock.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._drop(line)
            return
        *whole, line.received = (line.received + heard).split(b"\n")
        for text in whole:
            message = messages.parse(text)
            if message is None or not self._take(line, message):
                self._drop(line, "no message of a launcher of this job")
                return
        if len(line.received) > MAX_LINE_BYTES:
            self._drop(line, "an endless line")

    def _take(self, line: _Line, message: Message) -> bool:
        """Whether the message is one that may come on this line."""
        kind, values = message
        if line.process is not None:
            return self._hear(line.process, message)
        number = values.get("process")
        if kind != HELLO or type(number) is not int or not 0 < number < self._process.num_processes:
            return False
        if {**values, "process": 0} != self._expected:
            return False
        for other in [each for each in self._lines.values() if each.process == number]:
            self._drop(other)  # the launcher of a new container has taken its place
        line.process = number
        self._decisions.arrived(number)
        return True

    def _hear(self, process: int, message: Message) -> bool:
        kind, values = message
        now = time.monotonic()
        attempt = messages.attempt_in(values)
        if kind == FINISHED:
            self._tell(self._decisions.finished(process))
        elif kind == STOPPING:
            self._tell(self._decisions.stopping(process))
        elif kind == READY and attempt is not None:
            self._tell(self._decisions.ready(process, attempt, now))
        elif kind == ENDED and attempt is not None:
            end = messages.parse_end(process, values)
            if end is None:
                return False
            self._tell(self._decisions.ended(end, attempt, now))
        else:
            return False
        return True

    def _tell(self, decided: List[Message]) -> None:
        for message in decided:
            self.standing.take(message)
            for line in [each for each in self._lines.values() if each.process is not None]:
                line.unsent += messages.to_line(message)
                self._flush(line)

    def _flush(self, line: _Line) -> None:
        """Sends what the socket takes; the rest goes when it takes more."""
        try:
            sent = line.sock.send(line.unsent)
            del line.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            line.unsent.clear()  # its end is read
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
        self._selector.modify(line.sock, wanted, line)

    def _drop(self, line: _Line, why: str = "") -> None:
        self._selector.unregister(line.sock)
        del self._lines[line.sock.fileno()]
        line.sock.close()
        if why and not self._has_warned:
            self._has_warned = True
            logger.warning("dropped a connection on the launcher's port: %s", why)
        if line.process is not None:
            self._tell(self._decisions.gone(line.process))
