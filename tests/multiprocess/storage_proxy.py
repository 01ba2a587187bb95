"""Between the processes and the storage emulator: counts who writes what, and fails as real storage does.

Every process has a door (a port) of its own, so that a request tells whose it is.
"""

import http.client
import re
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.fakes import Exchange, HttpServer
from tests.multiprocess.bucket import Bucket

STALL, SLOW, CUT, DROP = -1, -2, -3, -4
"""In place of a status: the request is not answered before the fault is over; it is answered late; its answer ends in
the middle; its connection ends without one."""
SLOW_SECONDS, STALL_SECONDS = 1.0, 600.0
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
        self._servers = [HttpServer(partial(self._pass, index)) for index in range(processes)]

    def environment(self, process: int, host: str | None = None) -> dict[str, str]:
        """What makes a process use its door, by the address or by a name of this machine."""
        url = self._servers[process].url
        if host:
            url = url.replace("127.0.0.1", host)
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

    def shut(self) -> None:
        """Nobody listens any more, and every connection ends with its next request, until `open`."""
        self.fail(DROP, lambda request: True)
        for server in self._servers:
            server.close()

    def open(self) -> None:
        """The doors are where they were."""
        ports = [server.server_port for server in self._servers]
        self._servers = [HttpServer(partial(self._pass, index), port=port) for index, port in enumerate(ports)]
        self.heal()

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
            server.close()

    def _pass(self, process: int, exchange: Exchange) -> None:
        request = _understood(process, exchange.command, exchange.path, exchange.content)
        self.requests.append(request)
        fault = self.fault
        if fault is not None and fault.matches(request):
            fault.hits += 1
            if fault.status == DROP:
                exchange.close_connection = True
                return
            if fault.status == CUT:
                status, headers, content = self._ask(exchange)
                exchange.reply(status, content, headers, sent_bytes=len(content) // 2)
                return
            if fault.status > 0:
                if fault.loses_answer():
                    self._ask(exchange)
                exchange.reply(fault.status, b'{"error": {"message": "fault"}}', {"Content-Type": "application/json"})
                return
            fault.is_over.wait(STALL_SECONDS if fault.status == STALL else SLOW_SECONDS)
        self.on_their_way.add(threading.get_ident())
        try:
            status, headers, content = self._ask(exchange)
        finally:
            self.on_their_way.discard(threading.get_ident())
        if request.method == "GET":
            self.read.append((request, len(content)))
        exchange.reply(status, content, headers)

    def _ask(self, exchange: Exchange) -> tuple[int, dict[str, str], bytes]:
        where = urllib.parse.urlsplit(self.bucket.url).netloc
        upstream = http.client.HTTPConnection(where, timeout=LIMIT_SECONDS)
        try:
            headers = {k: v for k, v in exchange.headers.items() if k.lower() not in _HOP_BY_HOP}
            upstream.request(exchange.command, exchange.path, body=exchange.content, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        here = exchange.headers.get("Host", "")
        passed = {k: v.replace(where, here) for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
        return answer.status, passed, content


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
