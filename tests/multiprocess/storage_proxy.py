"""Between the processes and the storage emulator: counts who writes what, and fails as real storage does.

Every process has a door (a port) of its own, so that a request tells whose it is.
"""

import http.client
import http.server
import re
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.multiprocess.bucket import Bucket

STALL = -1
"""In place of a status: the request is not answered before the fault is over."""
LIMIT_SECONDS = 120.0
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Request:
    """What a process asked for."""

    process: int
    method: str
    name: str
    """Of the object; empty for listings and the like."""
    is_write: bool


@dataclass
class Fault:
    """Answers some requests in place of the storage; nothing is written then."""

    status: int
    """Of HTTP, or STALL."""
    matches: Callable[[Request], bool]
    loses_answer: Callable[[], bool] = lambda: False
    """Whether the storage does what it was asked for, and only the answer is replaced."""
    hits: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)


class StorageProxy:
    """Doors to the storage of a bucket, one for each process."""

    def __init__(self, bucket: Bucket, processes: int) -> None:
        self.bucket = bucket
        self.requests: list[Request] = []
        self.read: list[tuple[Request, int]] = []
        """What was answered to reads, in bytes."""
        self.fault: Fault | None = None
        self.on_their_way: set[int] = set()
        """Threads of requests that the storage is answering; those that stall are not among them."""
        self._servers = [_Server(self, index) for index in range(processes)]

    def environment(self, process: int) -> dict[str, str]:
        """What makes a process use its door."""
        url = f"http://127.0.0.1:{self._servers[process].server_port}"
        return {**self.bucket.environment, "STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url}

    def fail(
        self,
        status: int,
        matches: Callable[[Request], bool] = lambda request: request.is_write,
        *,
        loses_answer: Callable[[], bool] = lambda: False,
    ) -> Fault:
        """From now on such requests fail, until `heal`."""
        self.fault = Fault(status, matches, loses_answer)
        return self.fault

    def heal(self) -> None:
        """The storage works again; what stalled is let through."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            fault.is_over.set()

    def writers(self, requests: Sequence[Request] | None = None) -> dict[str, set[int]]:
        """Which processes wrote each object."""
        found: dict[str, set[int]] = {}
        for request in self.requests if requests is None else requests:
            if request.is_write and request.name:
                found.setdefault(request.name, set()).add(request.process)
        return found

    def close(self) -> None:
        self.heal()
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: StorageProxy, process: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy, self.process = proxy, process
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A process that was killed in the middle of a request is no news."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _pass(self) -> None:
        body = self._body()
        proxy = self.server.proxy
        request = _understood(self.server.process, self.command, self.path, body)
        proxy.requests.append(request)
        fault = proxy.fault
        if fault is not None and fault.matches(request):
            fault.hits += 1
            if fault.status != STALL:
                if fault.loses_answer():
                    self._ask(body)
                self._answer(fault.status, [("Content-Type", "application/json")], b'{"error": {"message": "fault"}}')
                return
            fault.is_over.wait(LIMIT_SECONDS)
        proxy.on_their_way.add(threading.get_ident())
        try:
            status, headers, content = self._ask(body)
        finally:
            proxy.on_their_way.discard(threading.get_ident())
        if request.method == "GET":
            proxy.read.append((request, len(content)))
        self._answer(status, headers, content)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        where = urllib.parse.urlsplit(self.server.proxy.bucket.url).netloc
        upstream = http.client.HTTPConnection(where, timeout=LIMIT_SECONDS)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            upstream.request(self.command, self.path, body=body, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        here = self.headers.get("Host", "")
        passed = [(k, v.replace(where, here)) for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP]
        return answer.status, passed, content

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _pass  # noqa: N815

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


def _understood(process: int, method: str, path: str, body: bytes) -> Request:
    parts = urllib.parse.urlsplit(path)
    query = urllib.parse.parse_qs(parts.query)
    if parts.path.startswith("/upload/"):
        name = query.get("name", [""])[0]
        if not name and (found := re.search(rb'"name":\s*"([^"]+)"', body[:2000])):
            name = found.group(1).decode()
        return Request(process, method, name, is_write=True)
    held = re.search(r"/b/[^/]+/o/([^/?]+)", parts.path)
    name = urllib.parse.unquote(held.group(1)) if held else ""
    return Request(process, method, name, is_write=method not in ("GET", "HEAD"))
