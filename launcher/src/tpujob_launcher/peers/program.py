"""The local socket on which a program, such as the trainer, reports its start and progress to its launcher.

A program that connects sends `hello` first, then messages as in `messages`; any other program is only watched from
outside. A line that cannot be read is dropped, since program and launcher may be of different releases.

One process is connected as the program: the first, as long as it lives, or the one that the launcher itself started.
A script may start its program again; processes that a program starts, such as data workers, are refused.
"""

import logging
import select
import selectors
import socket
import struct
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from tpujob_contract import environment
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import Message

logger = logging.getLogger(__name__)

LIMIT_BYTES = 1 << 18
"""Of a line of the program."""
MET, REFUSED, END, STRAGGLER = "met", "refused", "end", "straggler"
"""To the program: all have joined; why they cannot; which one ended first; to process 0, which ones are behind."""
STATE = "state"
"""From the program: its progress. `messages` has the other kinds."""
SEND_SECONDS = 2.0
"""For a program to take a line."""


class ProgramLine:
    """The socket and, once the program has connected, the connection."""

    def __init__(self, folder: Optional[Path]) -> None:
        """Listens in an empty folder; without one, or if it cannot hold a socket, no program connects."""
        self.variables: Dict[str, str] = {}
        """Environment variables by which the program finds the socket."""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        if folder is not None:
            self._listen(str(folder / "peers"))
        self._sock: Optional[socket.socket] = None
        self._pid: Optional[int] = None
        """The process at the other end; None: the system does not report it."""
        self._received = b""
        self.child: Optional[int] = None
        """The process that the launcher has started."""
        self.hello: Optional[Mapping[str, Any]] = None
        """What the program reported about itself; None: no program connects."""
        self.received_at = 0.0
        """Monotonic: when it last sent something."""
        self.has_left = False
        """Whether it has sent its goodbye."""

    def close(self) -> None:
        """Closes everything."""
        self.begin()
        self._listener.close()
        self._selector.close()

    def begin(self) -> None:
        """Called before another program starts."""
        self._drop()
        self.child = None
        self.hello = None
        self.has_left = False

    def fileno(self) -> int:
        """For `select`."""
        return self._selector.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether a program is connected and has not left."""
        return self._sock is not None and self.hello is not None and not self.has_left

    def receive(self) -> List[Message]:
        """The messages of the program since the last call."""
        found: List[Message] = []
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listener:
                found += self._accept()
            elif self._sock is not None:
                found += self._read(self._sock)
        return found

    def send(self, message: Message) -> None:
        """Sends a message to the program if one is connected."""
        if self._sock is None:
            return
        try:
            self._sock.settimeout(SEND_SECONDS)
            self._sock.sendall(messages.to_line(message))
        except OSError as error:
            logger.warning("the program does not receive its launcher's messages: %s", error)
            self._drop()
        else:
            self._sock.setblocking(False)

    def _listen(self, address: str) -> None:
        try:
            self._listener.bind(address)
            self._listener.listen(4)
        except OSError as error:  # its path is too long, or the file system has none
            logger.warning("the program cannot connect to its launcher: %s", error)
        else:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self.variables = {environment.PEERS_SOCKET: address}

    def _accept(self) -> List[Message]:
        """Accepts or refuses a connection; returns the last messages of the connection that it replaces."""
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return []
        pid, found = _pid_of(sock), []
        if self._sock is not None:
            is_own = pid is not None and pid in (self.child, self._pid)
            if not is_own and not _is_gone(self._sock, self._pid):
                logger.warning("process %s is refused: process %s is connected as the program", pid, self._pid)
                sock.close()
                return []
            found = self._read(self._sock)
            self._drop()
        sock.setblocking(False)
        self._sock, self._pid, self.hello, self.has_left = sock, pid, None, False
        self._selector.register(sock, selectors.EVENT_READ)
        return found

    def _read(self, sock: socket.socket) -> List[Message]:
        received = b""
        try:
            # Once: a program that never stops sending would keep its launcher from all other work.
            received = sock.recv(LIMIT_BYTES)
            is_closed = not received
        except BlockingIOError:
            is_closed = False
        except OSError:
            is_closed = True
        *whole, self._received = (self._received + received).split(b"\n")
        found = []
        for message in filter(None, map(messages.parse, whole)):
            self.received_at = time.monotonic()
            kind, values = message
            if kind == messages.HELLO:
                self.hello = values
            self.has_left = self.has_left or kind == messages.BYE
            found.append(message)
        if is_closed or len(self._received) > LIMIT_BYTES:
            self._drop()
        return found

    def _drop(self) -> None:
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
            self._received = b""


def _pid_of(sock: socket.socket) -> Optional[int]:
    """The process at the other end; None: the system does not report it."""
    if not hasattr(socket, "SO_PEERCRED"):  # not on macOS
        return None
    pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
    return pid


def _is_gone(sock: socket.socket, pid: Optional[int]) -> bool:
    """Whether the other end is closed, or its process has ended: one that it has forked may keep the connection."""
    end = select.poll()
    end.register(sock, 0)
    return bool(end.poll(0)) or (pid is not None and not Path(f"/proc/{pid}").exists())
