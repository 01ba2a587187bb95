"""A server of connections with lines of text, for up to ten thousand members: no threads, no blocking calls.

A client that is no member (another job's pod, a scanner, garbage, slow lines) is dropped without delaying others. Data
that a connection does not take at once is buffered. No work for one connection looks at all of them.
"""

import errno
import logging
import os
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, Optional

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 1024
MAX_UNIDENTIFIED = 64
"""Unidentified connections that are kept at once, in addition to one for each missing member."""
IDENTIFY_SECONDS = 10.0
"""Time for a connection to identify itself."""
_NO_FILES = (errno.EMFILE, errno.ENFILE)
SILENT_SECONDS = 25
"""After which a connection to a machine that is gone breaks: 10 s of silence, then three probes."""


def keep_alive(sock: socket.socket) -> None:
    """Makes the connection break when the other machine is gone: by default that takes two hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000}
    for name, value in wanted.items():
        if hasattr(socket, name):  # not on macOS
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_unreachable(error: OSError) -> bool:
    """Whether a connection broke because the other machine did not answer, not because it closed the connection."""
    return error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(eq=False)
class Line:
    """A connection."""

    sock: socket.socket
    since: float
    """Monotonic."""
    member: Optional[int] = None
    """Its number; None until the connection is identified."""
    is_silent: bool = False
    """Whether it broke because the other machine did not answer."""
    received: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)


class LineServer:
    """All connections to one listener."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        expected: int,
        *,
        on_line: Callable[[Line, bytes], Optional[str]],
        on_loss: Callable[[Line, str], None],
    ) -> None:
        """Listens.

        Args:
            listener: This object takes it over, and closes it.
            selector: For its sockets; this object takes it over, too.
            expected: The number of members.
            on_line: Handles a line of text, and may identify its connection; returns why to drop it, or None.
            on_loss: Called when a connection is dropped, with the reason, or "" if the other end has closed it.
        """
        self._on_line, self._on_loss = on_line, on_loss
        self.members: Dict[int, Line] = {}
        """The connection of each connected member."""
        self._expected = expected
        self._lines: Dict[socket.socket, Line] = {}
        self._unidentified: Dict[Line, None] = {}
        """In order of arrival."""
        self._unsent: Dict[Line, None] = {}
        self._listener = listener
        self._connections = selector
        self._spare = os.open(os.devnull, os.O_RDONLY)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)

    def identify(self, line: Line, member: int) -> None:
        """Assigns a connection to a member; an older one of the same member is dropped."""
        if member in self.members:
            self.drop(self.members[member])
        line.member = member
        self.members[member] = line
        self._unidentified.pop(line, None)

    def poll(self, seconds: float) -> None:
        """Handles what arrives within this time."""
        for key, events in self._connections.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
                continue
            line = self._lines.get(key.fileobj)  # type: ignore[call-overload]
            if line is not None and events & selectors.EVENT_WRITE:
                self._flush(line)
            if line is not None and events & selectors.EVENT_READ and line.sock in self._lines:
                self._receive(line)
        self._drop_silent()

    def send(self, line: Line, text: bytes) -> None:
        """Sends text, at once or as soon as the connection takes it."""
        line.unsent += text
        self._flush(line)

    def send_all(self, text: bytes) -> None:
        """Sends text to every member."""
        for line in list(self.members.values()):
            self.send(line, text)

    def deliver(self, seconds: float) -> None:
        """Returns when everything is sent; a member that does not read it in time is dropped."""
        until = time.monotonic() + seconds
        while self._unsent and time.monotonic() < until:
            self.poll(0.2)
        for line in list(self._unsent):
            self.drop(line)

    def drop(self, line: Line, why: str = "") -> None:
        """Closes a connection."""
        if self._lines.pop(line.sock, None) is None:
            return
        self._unsent.pop(line, None)
        self._unidentified.pop(line, None)
        if line.member is not None and self.members.get(line.member) is line:
            del self.members[line.member]
        self._connections.unregister(line.sock)
        line.sock.close()
        self._on_loss(line, why)

    def close(self) -> None:
        """Closes everything."""
        for line in self._lines.values():
            line.sock.close()
        self._listener.close()
        self._connections.close()
        os.close(self._spare)

    def _accept(self) -> None:
        """Accepts all waiting connections."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                # Without a free descriptor, the listener stays readable; Linux reports the error even if none waits.
                if error.errno not in _NO_FILES or not self._refuse():
                    return
                continue
            while len(self._unidentified) >= self._room():
                oldest = next(iter(self._unidentified))
                self._receive(oldest)  # its first line may have arrived already
                if oldest in self._unidentified:
                    self.drop(oldest, "silent")
            try:
                sock.setblocking(False)
                keep_alive(sock)
                self._connections.register(sock, selectors.EVENT_READ)
            except OSError:  # it is closed already, or the system has no more room
                sock.close()
                continue
            line = Line(sock, time.monotonic())
            self._lines[sock] = line
            self._unidentified[line] = None

    def _room(self) -> int:
        return MAX_UNIDENTIFIED + self._expected - len(self.members)

    def _refuse(self) -> bool:
        """Closes a connection for which there is no descriptor; returns whether there was one. A member tries again."""
        os.close(self._spare)
        try:
            self._listener.accept()[0].close()
        except OSError:
            return False
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        return True

    def _receive(self, line: Line) -> None:
        try:
            received = line.sock.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            received, line.is_silent = b"", is_unreachable(error)
        if not received:
            self.drop(line)
            return
        *whole, line.received = (line.received + received).split(b"\n")
        for text in whole:
            try:
                why = self._on_line(line, text)
            except Exception:  # this object serves all connections
                logger.exception("a message cannot be handled")
                why = "a message that cannot be handled"
            if why is not None:
                self.drop(line, why)
            if line.sock not in self._lines:
                return
        if len(line.received) > MAX_LINE_BYTES:
            self.drop(line, "an endless line")

    def _flush(self, line: Line) -> None:
        """Sends what the connection takes; the rest is sent later."""
        was_waiting = line in self._unsent
        try:
            while line.unsent:
                del line.unsent[: line.sock.send(line.unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            line.is_silent = is_unreachable(error)
            self.drop(line)
            return
        if line.unsent:
            self._unsent[line] = None
        else:
            self._unsent.pop(line, None)
        if bool(line.unsent) != was_waiting:
            writes = selectors.EVENT_WRITE if line.unsent else 0
            self._connections.modify(line.sock, selectors.EVENT_READ | writes)

    def _drop_silent(self) -> None:
        now = time.monotonic()
        while self._unidentified:
            oldest = next(iter(self._unidentified))
            if now - oldest.since <= IDENTIFY_SECONDS:
                return
            self.drop(oldest, "silent")
