"""Every launcher but launcher 0: one connection to launcher 0, made again when it is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from typing import List, Optional

from tpujob_contract.connections.line_server import MAX_LINE_BYTES
from tpujob_contract.environment import DistributedProcess
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import Message
from tpujob_launcher.peers.peers import Peers

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""For one try: a name that is not known yet, a machine that is gone."""
RETRY_SECONDS = 1.0


class Client(Peers):
    """Launcher 0, seen from another launcher."""

    def __init__(self, process: DistributedProcess, host: str, port: int) -> None:
        """Connects to nothing yet.

        Args:
            process: This launcher's.
            host: Of launcher 0.
            port: Of launcher 0.
        """
        super().__init__()
        self._hello = messages.to_line(messages.hello(process))
        self._address = (host, port)
        self._sock: Optional[socket.socket] = None
        self._received = b""
        self._failed_in = -1
        """The last attempt in which this launcher's program failed."""
        self._arrived: List[socket.socket] = []
        self._is_closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def start(self) -> None:
        """Connects in a thread, since names of pods take their time; call it when the program runs."""
        if self._sock is None:
            threading.Thread(target=self._connect, name="launcher 0", daemon=True).start()

    def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        for sock in [*self._arrived, *([self._sock] if self._sock else [])]:
            sock.close()
        self._selector.close()
        # The other end stays: a thread that connects may still write to it.
        os.close(self._wake_reader)

    def fail(self, code: int, at: float, line: str) -> None:
        """The program has failed, or has ended without success: exit code, Unix time, cause."""
        self._failed_in = self.standing.attempt
        super().fail(code, at, line)

    def step(self) -> None:
        """Handles what has come."""
        for key, _ in self._selector.select(0):
            if key.fileobj == self._wake_reader:
                os.read(self._wake_reader, 64)
                self._sock = self._arrived.pop()
                self._selector.register(self._sock, selectors.EVENT_READ)
            else:
                self._receive()

    def say(self, message: Message) -> None:
        """Tells launcher 0; what it cannot hear ends the attempts in this container."""
        try:
            if self._sock is None:
                raise ConnectionError("not connected")
            self._sock.settimeout(CONNECT_SECONDS)
            self._sock.sendall(messages.to_line(message))
        except OSError as error:
            self._close()
            self._give_up(f"launcher 0 cannot be reached: {error}")

    def _receive(self) -> None:
        assert self._sock is not None
        try:
            heard = self._sock.recv(MAX_LINE_BYTES)
        except (BlockingIOError, socket.timeout):  # noqa: UP041 - Python 3.9
            return
        except OSError:
            heard = b""
        if not heard:
            self._close()
            if self.has_to_end or self._failed_in == self.standing.attempt:
                self._give_up("the connection to launcher 0 is lost")
            else:
                self.start()  # the attempt goes on, and launcher 0 may be back before the next one
            return
        *whole, self._received = (self._received + heard).split(b"\n")
        for text in whole:
            message = messages.parse(text)
            if message is not None:
                self.standing.take(message)

    def _close(self) -> None:
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
            self._received = b""

    def _give_up(self, why: str) -> None:
        """Without launcher 0 this container has no further attempt: its pod is gone, or its program has ended."""
        if self.standing.over is None:
            self.standing.over = why

    def _connect(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(OSError):
                sock = socket.create_connection(self._address, timeout=CONNECT_SECONDS)
                sock.sendall(self._hello)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self._arrived.append(sock)
                os.write(self._wake_writer, b"c")
                return
            time.sleep(RETRY_SECONDS)
