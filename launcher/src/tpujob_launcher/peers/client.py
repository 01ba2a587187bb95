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

from tpujob_contract.connections.line_server import MAX_LINE_BYTES, keep_alive
from tpujob_contract.environment import DistributedProcess
from tpujob_contract.reports import in_place
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import ENDED, WELCOME, Message, Standpoint
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
        super().__init__(process)
        self._process = process
        self._address = (host, port)
        self._is_connecting = False
        self._lost_at: Optional[float] = None
        """Unix time at which launcher 0 was lost; None: it is there, or was not yet."""
        self._sock: Optional[socket.socket] = None
        self._received = b""
        self._failed_in: Optional[int] = None
        """The last attempt in which this launcher's program failed."""
        self._failure: Optional[Message] = None
        """What it said of that, for a launcher 0 that has not heard it."""
        self._arrived: List[socket.socket] = []
        self._is_closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def start(self) -> None:
        """Connects in a thread, since names of pods take their time; call it when the program runs."""
        if self._sock is None and not self._is_connecting:
            self._is_connecting = True
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
                self._sock, self._is_connecting, self._lost_at = self._arrived.pop(), False, None
                self._selector.register(self._sock, selectors.EVENT_READ)
            else:
                self._receive()

    def say(self, message: Message) -> None:
        """Tells launcher 0; what it cannot hear ends the attempts in this container, unless it may be replaced."""
        if message[0] == ENDED:
            self._failure = message
        try:
            if self._sock is None:
                raise ConnectionError("not connected")
            self._sock.settimeout(CONNECT_SECONDS)
            self._sock.sendall(messages.to_line(message))
        except OSError as error:
            self._close()
            if self.replaces_pods:
                self.start()
            else:
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
            self._lost_at = time.time()
            if not self.replaces_pods and (self.has_to_end or self._failed_in == self.standing.attempt):
                self._give_up("the connection to launcher 0 is lost")
            else:
                self.start()  # the attempt goes on, and launcher 0 may be back before the next one
            return
        *whole, self._received = (self._received + heard).split(b"\n")
        for text in whole:
            message = messages.parse(text)
            if message is not None:
                self.standing.take(message)
            if message is not None and message[0] == WELCOME:
                self._welcomed(message)

    def _welcomed(self, message: Message) -> None:
        """Launcher 0, which may be another one than before, knows where this one is."""
        self.welcomes += 1
        self.history.take(in_place.checked(message[1].get("account")))
        if self._failure is not None and self._failed_in == self.standing.attempt:
            self.say(self._failure)

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
                attempt = self.standing.attempt
                at = Standpoint(None if attempt < 0 else attempt, self.history.account, self._lost_at)
                said = messages.hello(self._process, at if self.replaces_pods else None)
                sock.sendall(messages.to_line(said))
                sock.setblocking(False)
                keep_alive(sock)
                self._arrived.append(sock)
                os.write(self._wake_writer, b"c")
                return
            time.sleep(RETRY_SECONDS)
