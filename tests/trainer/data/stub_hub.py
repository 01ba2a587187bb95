"""A storage on the loopback that lists a folder, serves ranges of its files, and misbehaves as it is told to."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fakes import Exchange, HttpServer


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
        self._server = HttpServer(self.answer)

    @property
    def url(self) -> str:
        return self._server.url

    def answer(self, handler: Exchange) -> None:
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
            handler.reply(fault.status, headers=extra)
            return
        self.respond(handler, path, fault)

    def respond(self, handler: Exchange, path: str, fault: Fault | None) -> None:
        """The answer to a request that does not fail altogether."""
        file = self.folder / path.strip("/")
        if file.is_dir():
            links = "".join(f'<a href="{entry.name}">{entry.name}</a>\n' for entry in sorted(file.iterdir()))
            handler.reply(200, links.encode(), {"Content-Type": "text/html"})
            return
        if not file.is_file():
            handler.reply(404)
            return
        self._send_file(handler, file.read_bytes(), fault)

    def _send_file(self, handler: Exchange, content: bytes, fault: Fault | None) -> None:
        size, status, extra = len(content), 200, {"Accept-Ranges": "bytes"}
        if wanted := handler.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            content, status = content[int(first) : int(last) + 1], 206
            extra["Content-Range"] = f"bytes {first}-{last}/{size}"
        if fault and fault.kind == "short":
            content = content[: len(content) // 2]
        cut = len(content) // 2 if fault and fault.kind == "truncated" else None
        handler.reply(status, content, extra, sent_bytes=cut)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
