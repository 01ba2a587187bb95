"""A small HTTP server for processes that clients must not disturb: the servers of launcher, trainer and operator.

- One thread for all connections, so that many clients cost no threads; a request is answered once it is complete.
- A deadline for the whole request and its response: a client that sends a byte now and then is dropped, too.
- A limit on connections, at most a quarter of the process's descriptors. One more drops the oldest that is not served
  yet: it is the slowest, and a healthy client has been answered long before.
- Dropped clients are logged in at most one warning a minute.
- `serve` has the pages of a process about itself: of a trainer, or of a launcher whose program serves none.
"""

from __future__ import annotations

import contextlib
import http
import logging
import resource
import selectors
import socket
import threading
import time
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from tpujob_contract import ports

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
MOST_CONNECTIONS = 128
MOST_HEAD_BYTES = 16 << 10
MOST_BODY_BYTES = 4096
LENGTH_DIGITS = 20
WARNING_SECONDS = 60.0
_TICK_SECONDS = 0.5
_YOUNG_SECONDS = 0.02
"""A connection younger than this is not dropped for a newer one: its request may be on its way."""
_PAUSE_SECONDS = 0.005
"""Pause while all connections are young and more wait."""
_CHUNK = 16 << 10
_BACKLOG = 512
THREAD = "http-server"

JSON = "application/json"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""
METRICS_PATH = "/metrics"

Page = Tuple[str, Callable[[], bytes]]
"""Its content type, and a function that returns its content."""


class Request(NamedTuple):
    """An HTTP request."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    client: str
    """Its address."""


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    content_type: str
    content: bytes
    headers: Tuple[Tuple[str, str], ...] = ()
    """In addition to those of every response."""


Handler = Callable[[Request], Response]


def plain(status: int, text: str) -> Response:
    """A response with one line of text."""
    return Response(status, "text/plain; charset=utf-8", f"{text}\n".encode())


class HttpServer:
    """Listens once it is created, answers between `start` and `close`. The handler runs in the server's thread."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str,
        port: int,
        request_seconds: float = REQUEST_SECONDS,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        """Listens; connections wait until `start`.

        Args:
            handler: Answers a request, without blocking for long.
            host: Address to listen on, or `ports.EVERY_ADDRESS`.
            port: Port to listen on; 0: any free one.
            request_seconds: Time from the connection to the last byte of the response.
            most_connections: Limit on simultaneous connections.

        Raises:
            OSError: The port is taken.
        """
        self._handler = handler
        self._request_seconds = request_seconds
        self._most = min(most_connections, _affordable())
        self._listener = ports.listener(host, port, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connections: Dict[int, _Connection] = {}
        self._dropped = 0
        self._next_warning = 0.0
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)

    def start(self) -> None:
        """Starts answering requests."""
        self._thread.start()

    def close(self) -> None:
        """Stops, and closes all connections."""
        self._wake.close()
        if self._thread.is_alive():
            self._thread.join()
        for connection in list(self._connections.values()):
            self._forget(connection)
        self._selector.close()
        for each in (self._listener, self._woken):
            each.close()

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select(_TICK_SECONDS):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._connections:  # not dropped a moment ago
                    self._advance(self._connections[key.fd], events)
            self._drop_late(time.monotonic())

    def _accept(self) -> None:
        """Accepts all waiting connections, so that no client waits behind slow ones."""
        while len(self._connections) < self._most or self._make_room():
            try:
                client, where = self._listener.accept()
                client.setblocking(False)
                self._selector.register(client, selectors.EVENT_READ)
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors, no memory, or the client is gone already
                if not self._connections:
                    logger.debug("no connection: %s", error)
                    return
                if not self._make_room():
                    return
                continue
            connection = _Connection(client, str(where[0]), time.monotonic() + self._request_seconds)
            self._connections[client.fileno()] = connection
            # Most requests have arrived already.
            self._advance(connection, selectors.EVENT_READ)

    def _advance(self, connection: _Connection, events: int) -> None:
        try:
            if connection.answer is None and events & selectors.EVENT_READ:
                request = connection.receive()
                if request is None:
                    return
                connection.answer = memoryview(_encoded(request.method, self._answer(request)))
            if connection.answer is not None and connection.send():
                self._forget(connection)
            elif connection.answer is not None:
                self._selector.modify(connection.socket, selectors.EVENT_WRITE)
        except _BadRequestError as error:
            connection.answer = memoryview(_encoded("GET", plain(400, str(error))))
            self._advance(connection, selectors.EVENT_WRITE)
        except OSError as error:  # the client left early
            logger.debug("request from %s ended early: %s", connection.client, error)
            self._forget(connection)
        except Exception:  # the thread serves all connections
            logger.exception("a request from %s is dropped", connection.client)
            self._forget(connection)

    def _answer(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception:
            logger.exception("cannot answer %s %s", request.method, request.path)
            return plain(500, "the answer failed; the log of this process has the cause")

    def _drop_late(self, now: float) -> None:
        for connection in [each for each in self._connections.values() if each.deadline < now]:
            self._drop(connection)
        if self._dropped and now >= self._next_warning:
            logger.warning(
                "%d clients of port %d were dropped: they took longer than %g s, or there were more than %d at once",
                self._dropped,
                self.port,
                self._request_seconds,
                self._most,
            )
            self._dropped, self._next_warning = 0, now + WARNING_SECONDS

    def _make_room(self) -> bool:
        """Serves or drops the oldest connection; returns False while it is young, and newer ones can wait."""
        oldest = next(iter(self._connections.values()))
        self._advance(oldest, selectors.EVENT_READ)
        if self._connections.get(oldest.socket.fileno()) is not oldest:
            return True
        if time.monotonic() < oldest.deadline - self._request_seconds + _YOUNG_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            return False
        self._drop(oldest)
        return True

    def _drop(self, connection: _Connection) -> None:
        self._dropped += 1
        self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()


def _affordable() -> int:
    """A number of connections that leaves most descriptors to the program: to its own files, and the handler's."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else max(8, limit // 4)


class _BadRequestError(Exception):
    """The data is not an HTTP request, or is too long."""


class _Connection:
    """One client: the data received from it, and the rest of its response."""

    def __init__(self, client_socket: socket.socket, client: str, deadline: float) -> None:
        self.socket = client_socket
        self.client = client
        self.deadline = deadline
        self.answer: Optional[memoryview] = None
        self._received = b""

    def receive(self) -> Optional[Request]:
        """The request; None: it is not complete yet.

        Raises:
            OSError: The client is gone.
        """
        while True:
            try:
                data = self.socket.recv(_CHUNK)
            except BlockingIOError:
                return None
            if not data:
                raise ConnectionResetError("closed before the request was whole")
            self._received += data
            request = self._parsed()
            if request is not None:
                return request

    def send(self) -> bool:
        """Sends as much as the socket takes; returns whether all of it has been sent."""
        while self.answer:
            try:
                self.answer = self.answer[self.socket.send(self.answer) :]
            except BlockingIOError:
                return False
        # Unread data would make the kernel reset the connection, and the client would lose the response.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        return True

    def _parsed(self) -> Optional[Request]:
        head, end, body = self._received.partition(b"\r\n\r\n")
        if len(head) > MOST_HEAD_BYTES:
            raise _BadRequestError(f"the head of the request is longer than {MOST_HEAD_BYTES} bytes")
        if not end:
            return None
        first, _, rest = head.decode("latin-1").partition("\r\n")
        method, target, headers = _words(first, rest)
        length = headers.get("content-length", "0")
        # Compared first: Python refuses to convert thousands of digits.
        if not length.isdecimal() or len(length) > LENGTH_DIGITS or int(length) > MOST_BODY_BYTES:
            raise _BadRequestError(f"Content-Length: {length[:20]} is not a number up to {MOST_BODY_BYTES}")
        if len(body) < int(length):
            return None
        return Request(method, target.partition("?")[0], headers, body[: int(length)], self.client)


def _words(first: str, rest: str) -> Tuple[str, str, Dict[str, str]]:
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequestError("not a request of HTTP/1")
    lines = [line.partition(":") for line in rest.split("\r\n") if line]
    return words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in lines}


def _encoded(method: str, response: Response) -> bytes:
    try:
        phrase = http.HTTPStatus(response.status).phrase
    except ValueError:
        phrase = ""
    head = (
        f"HTTP/1.1 {response.status} {phrase}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.content)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in response.headers) + "\r\n"
    return head.encode("latin-1") + (b"" if method == "HEAD" else response.content)


def address(*, in_pod: bool) -> str:
    """The address to listen on: in a pod all, of IPv6, too, where a NetworkPolicy limits access; else this machine."""
    return ports.EVERY_ADDRESS if in_pod else "127.0.0.1"


def serve(
    pages: Mapping[str, Page],
    *,
    host: str,
    port: int,
    headers: Sequence[Tuple[str, str]] = (),
    post: Optional[Handler] = None,
) -> Optional[HttpServer]:
    """A running server; None: the port is taken, which is logged, because the program does not depend on it.

    Args:
        pages: By path.
        host: The address to listen on.
        port: The port to listen on; 0: any free one.
        headers: Additional headers of each page.
        post: Handles POST; None: POST is refused.
    """

    def answer(request: Request) -> Response:
        if request.method == "POST" and post is not None:
            return post(request)
        if request.method not in ("GET", "HEAD"):
            return plain(405, "GET and POST alone are answered here" if post else "GET alone is answered here")
        found = pages.get(request.path)
        if found is None:
            return plain(404, f"there are {', '.join(pages)}")
        return Response(200, found[0], found[1](), tuple(headers))

    try:
        server = HttpServer(answer, host=host, port=port)
    except OSError as error:
        logger.warning("No %s: port %d of %s: %s", " and ".join(pages), port, host, error.strerror or error)
        return None
    server.start()
    logger.info("Serving %s on %s:%d", " and ".join(pages), host, server.port)
    return server
