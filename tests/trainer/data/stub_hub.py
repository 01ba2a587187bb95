"""A storage on the loopback that lists a folder, serves ranges of its files, and misbehaves as it is told to."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Fault:
    """What one request gets in place of an answer."""

    kind: str
    """status, reset (no answer at all), truncated (half of the body), short (a whole answer of half the range)."""
    status: int = 503
    retry_after: str | None = None
    seconds: float = 0.0
    """To wait before."""


@dataclass(frozen=True)
class Request:
    """One request, as it came."""

    at: float
    """Monotonic seconds."""
    host: str
    """What the header X-Host says, or `origin/` in the user agent (HF_HUB_USER_AGENT_ORIGIN)."""
    method: str
    path: str
    status: int
    """0 for no answer."""
    range: str = ""
    """Of the bytes that are asked for."""


@dataclass
class StubHub:
    """Serves `folder`; `faults` decides about each request: (its number, host, path) → what goes wrong, or None."""

    folder: Path
    faults: Callable[[int, str, str], Fault | None] = lambda number, host, path: None
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def do_POST(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                return

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                return  # a connection that was cut on purpose

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path
        origin = re.search(r"origin/(\S+)", handler.headers.get("User-Agent", ""))
        host = handler.headers.get("X-Host") or (origin[1] if origin else "")
        wanted = handler.headers.get("Range", "")
        with self._lock:
            fault = self.faults(len(self.requests), host, path)
            if fault and fault.kind in {"truncated", "short"} and handler.command == "HEAD":
                fault = None  # no body that could be cut
            status = {"status": fault.status, "reset": 0}.get(fault.kind, 206) if fault else 200
            self.requests.append(Request(time.monotonic(), host, handler.command, path, status, wanted))
        if fault and fault.seconds:
            threading.Event().wait(fault.seconds)
        if fault and fault.kind == "reset":
            handler.close_connection = True
            handler.connection.close()
            return
        if fault and fault.kind == "status":
            extra = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            self._send(handler, fault.status, b"", extra)
            return
        self.respond(handler, path, fault)

    def respond(self, handler: http.server.BaseHTTPRequestHandler, path: str, fault: Fault | None) -> None:
        """The answer to a request that does not fail altogether."""
        file = self.folder / path.strip("/")
        if file.is_dir():
            links = "".join(f'<a href="{entry.name}">{entry.name}</a>\n' for entry in sorted(file.iterdir()))
            self._send(handler, 200, links.encode(), {"Content-Type": "text/html"})
            return
        if not file.is_file():
            self._send(handler, 404, b"", {})
            return
        self._send_file(handler, file.read_bytes(), fault)

    def _send_file(self, handler: http.server.BaseHTTPRequestHandler, content: bytes, fault: Fault | None) -> None:
        size, status, extra = len(content), 200, {"Accept-Ranges": "bytes"}
        if wanted := handler.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            content, status = content[int(first) : int(last) + 1], 206
            extra["Content-Range"] = f"bytes {first}-{last}/{size}"
        if fault and fault.kind == "short":
            content = content[: len(content) // 2]
        self._send(handler, status, content, extra, cut=bool(fault and fault.kind == "truncated"))

    def _send(
        self,
        handler: http.server.BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        headers: dict[str, str],
        *,
        cut: bool = False,
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            handler.close_connection = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
