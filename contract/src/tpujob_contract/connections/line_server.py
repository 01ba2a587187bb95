"""A listener whose connections are lines of text, of ten thousand members at once: no thread, nothing that blocks.

What is no member (another job's pod, a scanner, garbage, slow lines) is dropped; it neither ends nor delays anything.
What a connection does not take at once waits until it does. Nothing that is done for one connection looks at all.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Dict, Optional

MAX_LINE_BYTES = 16 * 1024
MAX_UNIDENTIFIED = 64
"""Connections without a member, kept at once, beside one for each member that has yet to come."""
IDENTIFY_SECONDS = 10.0
"""For a connection to say who it is."""
_NO_FILES = (errno.EMFILE, errno.ENFILE)
SILENT_SECONDS = 25
"""After which a connection to a machine that is gone breaks: 10 s without a word, then three questions."""


def keep_alive(sock: socket.socket) -> None:
    """Has the connection break when the other end's machine is gone: by itself it would stay for two hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000}
    for name, value in wanted.items():
        if hasattr(socket, name):  # not on macOS
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_unreachable(error: OSError) -> bool:
    """Whether a connection broke since nothing came any more, rather than since the other end has closed it."""
    return error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(eq=False)
class Line:
    """A connection."""

    sock: socket.socket
    since: float
    """Monotonic."""
    member: Optional[int] = None
    """Who it is; None until it has said so."""
    is_silent: bool = False
    """Whether it broke since nothing came any more."""
    received: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)


class LineServer(ABC):
    """All connections to one listener."""

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector, expected: int) -> None:
        """Listens.

        Args:
            listener: Belongs to this object from here on.
            selector: Where its sockets are registered; likewise.
            expected: How many members there may be.
        """
        self.members: Dict[int, Line] = {}
        """The line of each member that is connected."""
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

    @abstractmethod
    def hear(self, line: Line, text: bytes) -> Optional[str]:
        """Takes a whole line; why the connection is to be dropped, or None. May identify the line."""

    @abstractmethod
    def gone(self, line: Line, why: str) -> None:
        """Called when a connection is dropped: why, or "" where the other end has closed it."""

    def identify(self, line: Line, member: int) -> None:
        """From here on the line is this member's; an older one of the same member is dropped."""
        if member in self.members:
            self.drop(self.members[member])
        line.member = member
        self.members[member] = line
        self._unidentified.pop(line, None)

    def poll(self, seconds: float) -> None:
        """Handles what has come within this time."""
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
        """Sends a line, at once or as soon as the connection takes it."""
        line.unsent += text
        self._flush(line)

    def send_all(self, text: bytes) -> None:
        """Sends a line to every member."""
        for line in list(self.members.values()):
            self.send(line, text)

    def deliver(self, seconds: float) -> None:
        """Returns when everything is sent; who does not read it in time is dropped."""
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
        self.gone(line, why)

    def close(self) -> None:
        """Closes everything."""
        for line in self._lines.values():
            line.sock.close()
        self._listener.close()
        self._connections.close()
        os.close(self._spare)

    def _accept(self) -> None:
        """All that wait to be accepted."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                # Without a descriptor, the listener would be readable for ever; Linux says so even if nobody waits.
                if error.errno not in _NO_FILES or not self._refuse():
                    return
                continue
            while len(self._unidentified) >= self._room():
                oldest = next(iter(self._unidentified))
                self._receive(oldest)  # what it has to say may be here already
                if oldest in self._unidentified:
                    self.drop(oldest, "silent")
            sock.setblocking(False)
            keep_alive(sock)
            line = Line(sock, time.monotonic())
            self._lines[sock] = line
            self._unidentified[line] = None
            self._connections.register(sock, selectors.EVENT_READ)

    def _room(self) -> int:
        return MAX_UNIDENTIFIED + self._expected - len(self.members)

    def _refuse(self) -> bool:
        """Whether there was a connection to close, for which there is no descriptor; a member comes again."""
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
            heard = line.sock.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            heard, line.is_silent = b"", is_unreachable(error)
        if not heard:
            self.drop(line)
            return
        *whole, line.received = (line.received + heard).split(b"\n")
        for text in whole:
            why = self.hear(line, text)
            if why is not None:
                self.drop(line, why)
            if line.sock not in self._lines:
                return
        if len(line.received) > MAX_LINE_BYTES:
            self.drop(line, "an endless line")

    def _flush(self, line: Line) -> None:
        """Sends what the connection takes; the rest goes when it takes more."""
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
