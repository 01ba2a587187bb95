"""All launchers except launcher 0: one connection to launcher 0, which is restored when it is lost."""

import errno
import logging
import os
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import List, Mapping, Optional

from tpujob_contract.environment import DistributedProcess
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.line_server import MAX_LINE_BYTES, is_unreachable, keep_alive
from tpujob_launcher.peers.messages import FAILED, Message, Standpoint
from tpujob_launcher.peers.peers import SILENT, Peers
from tpujob_launcher.peers.program import LIMIT_BYTES
from tpujob_launcher.peers.timing import HEARTBEATS, RECONNECT_SECONDS, named_after_seconds
from tpujob_launcher.peers.verdict import lost

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""For one attempt to connect: the name may not resolve yet, or the machine may be gone."""
RETRY_SECONDS = 1.0


class Client(Peers):
    """Launcher 0, seen from another launcher."""

    def __init__(self, process: DistributedProcess, host: str, port: int, folder: Optional[Path] = None) -> None:
        """Does not connect yet. `host` and `port` are of launcher 0."""
        super().__init__(process, folder)
        self._address = (host, port)
        self._is_connecting = False
        self._lost_at: Optional[float] = None
        """Unix time at which launcher 0 was lost; None: it is connected, or never was."""
        self._sock: Optional[socket.socket] = None
        self._received = b""
        self._failed_in: Optional[int] = None
        """The last attempt in which this launcher's program failed."""
        self._failure: Optional[Message] = None
        """The report of that failure, for a launcher 0 that does not have it."""
        self._arrived: List[socket.socket] = []
        self._problem = "no answer"
        """Why there is no connection to launcher 0."""
        self._received_at: Optional[float] = None
        """Monotonic: when launcher 0 last sent something; None: not yet, or it is lost."""
        self._named_at: Optional[float] = None
        """The value of `_received_at` for which its silence was logged."""
        self._connected_at = 0.0
        """Monotonic: when the last connection was made."""
        self._is_refused = False
        """Whether launcher 0 closed the last connection at once, as one of another attempt or release does."""
        self._broken_at: Optional[float] = None
        """Monotonic: when the connection broke."""
        self._joined_at: Optional[float] = None
        """Monotonic: when the program began to wait for the others."""
        self._has_left = False
        """Whether launcher 0 has sent its goodbye."""
        self._is_closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def start(self) -> None:
        """Connects in a thread, since names of pods resolve slowly; call it once the program runs."""
        if self._sock is None and not self._is_connecting:
            self._is_connecting = True
            threading.Thread(target=self._connect, name="launcher 0", daemon=True).start()

    def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        for sock in [*self._arrived, *([self._sock] if self._sock else [])]:
            sock.close()
        self._selector.close()
        super().close()
        # The other end stays open: a thread that connects may still write to it.
        os.close(self._wake_reader)

    def fail(self, code: int, at: float, line: str, kind: str = FAILED) -> None:
        """The program has failed, or has ended without success: exit code, Unix time, cause."""
        self._failed_in = self.state.attempt
        super().fail(code, at, line, kind)

    def begin(self, attempt: int) -> None:
        """Called before the program of another attempt starts."""
        super().begin(attempt)
        self._joined_at = None

    def seconds(self) -> Optional[float]:
        """Time until something is due."""
        due = super().seconds() or 0.0
        return due if self._broken_at is None else min(due, RECONNECT_SECONDS)

    def report_if_connected(self, message: Message) -> None:
        """Sends a message to launcher 0 if there is a connection."""
        if message[0] in (messages.PROGRESS, messages.HEARTBEAT):
            self._next_heartbeat = time.monotonic() + self.heartbeat_seconds / HEARTBEATS
        if self._sock is not None:
            try:
                self._send_line(message)
            except OSError as error:
                self._lose_connection(is_silent=is_unreachable(error))
                self.start()

    def _step_connections(self) -> None:
        """Handles received messages."""
        for key, _ in self._selector.select(0):
            if key.fileobj == self._wake_reader:
                os.read(self._wake_reader, 64)
                self._sock, self._is_connecting, self._lost_at = self._arrived.pop(), False, None
                self._selector.register(self._sock, selectors.EVENT_READ)
                self._connected_at = self._received_at = time.monotonic()
                self._broken_at, self._has_left = None, False
                if not self._is_refused:
                    logger.info("connected to launcher 0 at %s:%d", *self._address)
                if self._program_hello is not None:
                    self.report_if_connected((messages.JOINED, {"attempt": self.state.attempt, **self._program_hello}))
            else:
                self._receive()
        self._notice_loss(time.monotonic())

    def report(self, message: Message) -> None:
        """Sends a message to launcher 0.

        If that fails, no further attempt starts in this container, unless lost pods are replaced.
        """
        if message[0] == messages.ENDED:
            self._failure = message
        try:
            if self._sock is None:
                raise ConnectionError("not connected")
            self._send_line(message)
        except OSError as error:
            self._lose_connection(is_silent=is_unreachable(error))
            if self.replaces_pods:
                self.start()
            else:
                self._give_up(f"launcher 0 cannot be reached: {error}")

    def _receive(self) -> None:
        assert self._sock is not None
        is_silent = False
        try:
            received = self._sock.recv(MAX_LINE_BYTES)
        except OSError as error:
            if error.errno in (None, errno.EAGAIN):  # no data; a timeout of Python's own has no number
                return
            received, is_silent = b"", is_unreachable(error)
        if not received:
            self._lose_connection(is_silent=is_silent)
            is_over = self._has_left or self.state.has_to_end or self._failed_in == self.state.attempt
            if not self.replaces_pods and is_over:
                self._give_up("the connection to launcher 0 is lost")
            else:
                self.start()  # the attempt goes on; launcher 0 may be back before the next one
            return
        *whole, self._received = (self._received + received).split(b"\n")
        self._received = self._received[:LIMIT_BYTES]  # a longer line is no message
        for message in filter(None, map(messages.parse, whole)):
            try:
                self._take(message)
            except Exception:  # the launcher outlives whatever launcher 0 sends
                logger.exception("a message of launcher 0 cannot be handled")

    def _take(self, message: Message) -> None:
        kind, values = message
        self._received_at = time.monotonic()
        self._has_left = self._has_left or kind == messages.BYE
        if kind != messages.ROUND:
            return
        self.state.update(values)
        if values.get("welcome") is True:
            self.welcomes += 1
            if self._failure is not None and self._failed_in == self.state.attempt:
                self.report(self._failure)  # this may be another launcher 0 than before

    def _notice_loss(self, now: float) -> None:
        """Handles a launcher 0 that does not come back, is silent, or was never there."""
        if self._program_hello is not None and self._joined_at is None:
            self._joined_at = now
        silent = 0.0 if self._received_at is None else now - self._received_at
        if self._broken_at is not None and now >= self._broken_at + RECONNECT_SECONDS:
            self._lose_lead(0.0)
        elif silent > self.limit_seconds:
            self._lose_lead(silent)
        elif silent > named_after_seconds(self.heartbeat_seconds) and self._named_at != self._received_at:
            self._named_at = self._received_at
            logger.warning("%s", SILENT.format("process 0", self.limit_seconds))
        limit = self.process.startup_seconds
        is_waiting = self._joined_at is not None and self.state.met is None and self._sock is None
        if is_waiting and now >= (self._joined_at or 0.0) + limit:
            self.state.refused = self.state.refused or self._no_answer(limit)

    def _lose_lead(self, silent_seconds: float) -> None:
        """Launcher 0 is lost, so the program has to end."""
        end = lost([0], "process {}".format, time.time(), silent_seconds=silent_seconds)
        self._received_at = self._broken_at = None
        if self.state.first is None:
            self.state.first, self.state.first_host = end, str((self.state.met or {}).get("lead", ""))
        # Launcher 0 may still run without having noticed anything.
        if self.replaces_pods:
            self.fail(end.code, end.at, f"lost process 0: {end.line}")
        else:
            self._give_up("launcher 0 is lost")

    def _no_answer(self, limit: int) -> Mapping[str, str]:
        host, port = self._address
        return {
            "error": "PeersMissingError",
            "message": f"process 0 (slice 0, host 0) at {host}:{port} did not answer within {limit:g} s "
            f"({self._problem}); see whether its pod is scheduled, whether its log ends before this, and "
            "whether it has the image and the secret of this one",
        }

    def _send_line(self, message: Message) -> None:
        assert self._sock is not None
        self._sock.settimeout(CONNECT_SECONDS)
        self._sock.sendall(messages.to_line(message))

    def _lose_connection(self, *, is_silent: bool = False) -> None:
        """Closes it. `is_silent`: the machine of launcher 0 did not answer, and has its heartbeat limit to return."""
        if self._sock is None:
            return
        now = time.monotonic()
        self._lost_at = time.time()
        self._is_refused = now - self._connected_at < RETRY_SECONDS
        self._problem = "it closes the connection" if self._is_refused else self._problem
        if self._has_left or not is_silent:
            self._broken_at, self._received_at = None if self._has_left else now, None
        self._selector.unregister(self._sock)
        self._sock.close()
        self._sock, self._received = None, b""

    def _give_up(self, why: str) -> None:
        """No further attempt starts in this container: the pod of launcher 0 is gone, or its program has ended."""
        if self.state.over is None:
            self.state.over = why

    def _connect(self) -> None:
        if self._is_refused:
            time.sleep(RETRY_SECONDS)
        while not self._is_closed:
            try:
                sock = socket.create_connection(self._address, timeout=CONNECT_SECONDS)
                attempt = self.state.attempt
                at = Standpoint(None if attempt < 0 else attempt, self.state.account, self._lost_at)
                hello = messages.hello(self.process, at if self.replaces_pods else None, socket.gethostname())
                sock.sendall(messages.to_line(hello))
                sock.setblocking(False)
                keep_alive(sock)
                self._arrived.append(sock)
                os.write(self._wake_writer, b"c")
            except OSError as error:
                self._problem = error.strerror or str(error) or type(error).__name__
            else:
                return
            time.sleep(RETRY_SECONDS)
