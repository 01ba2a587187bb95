"""Stand-ins that many tests share: time that passes when a test lets it, and HTTP servers on loopback."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

POLL_SECONDS = 0.01


class Clock:
    """Time that passes when a test adds to `now`, or when something waits."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


class Exchange(BaseHTTPRequestHandler):
    """One connection of an HttpServer, whose `answer` reads `content` and calls `reply` for each request."""

    protocol_version = "HTTP/1.1"
    server: HttpServer
    content: bytes = b""
    """The body of the request."""

    def reply(
        self, status: int, content: bytes = b"", headers: Mapping[str, str] = {}, *, sent_bytes: int | None = None
    ) -> None:
        """Answers; after `sent_bytes` of the content the connection ends."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:sent_bytes])
        if sent_bytes is not None:
            self.close_connection = True

    def handle(self) -> None:
        # A client that was killed does not say goodbye.
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().handle()

    def _answer(self) -> None:
        self.content = self._read_content()
        self.server.answer(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _read_content(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def log_message(self, *_: object) -> None:
        """Nothing: tests look at what was asked."""


class HttpServer(ThreadingHTTPServer):
    """Answers in threads of its own, from its start to the end of a `with` block, or to `close`."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        answer: Callable[[Exchange], None],
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        super().__init__((address, port), Exchange)
        self.answer = answer
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.host = f"{address}:{self.server_port}"
        self.url = f"{'http' if tls is None else 'https'}://{self.host}"
        self._thread = threading.Thread(target=self.serve_forever, args=(poll_seconds,), daemon=True)
        self._thread.start()

    def handle_error(self, *_: object) -> None:
        """Nothing: a connection that was cut on purpose, or whose client was killed, is no news."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
