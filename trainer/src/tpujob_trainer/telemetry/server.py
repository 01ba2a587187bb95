"""GET /report, /metrics and the page of this process, on daemon threads, for the operator and for Prometheus.

POST /profile is for this machine alone, and not for the pages of a browser there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tpujob_contract import profiling
from tpujob_contract.report import PATH
from tpujob_trainer.telemetry import page
from tpujob_trainer.telemetry.profiler import BusyError, Profiler

logger = logging.getLogger(__name__)

MAX_REQUESTS_AT_ONCE = 8
JSON = "application/json"
REQUEST_SECONDS = 5
MOST_BODY_BYTES = 4096
LOOPBACK = ("127.0.0.1", "localhost")


def address(*, in_pod: bool) -> str:
    """All interfaces in a pod, where a NetworkPolicy decides who may come; this machine alone elsewhere."""
    return "0.0.0.0" if in_pod else "127.0.0.1"  # noqa: S104


class Server:
    """A running HTTP server; `close` ends it."""

    def __init__(self, http: ThreadingHTTPServer) -> None:
        self._http = http
        self.port: int = http.server_address[1]
        threading.Thread(target=http.serve_forever, name="report-server", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._http.shutdown()
        self._http.server_close()


def serve(
    report: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], bytes],
    *,
    host: str,
    port: int,
    curve: Callable[[], page.Points] = lambda: (),
    name: str = "",
    profiler: Profiler | None = None,
) -> Server | None:
    """A server on `port` (0: any free one), or None when the port is taken: training does not depend on it.

    Args:
        report: What /report answers.
        metrics: What /metrics answers.
        host: The address to listen on.
        port: The port there.
        curve: Step and loss, for the page.
        name: Of the job, for the page.
        profiler: Takes profiles; None: this program takes none.
    """
    pages: dict[str, tuple[str, Callable[[], bytes]]] = {
        "/": ("text/html; charset=utf-8", lambda: page.render(report(), curve(), name=name)),
        PATH: (JSON, lambda: json.dumps(report()).encode()),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
    }
    if profiler:
        pages[profiling.PATH] = (JSON, lambda: json.dumps(profiler.state()).encode())
    try:
        http = _Http((host, port), pages, profiler)
    except OSError as error:
        logger.warning("No /report and /metrics: port %d of %s: %s", port, host, error.strerror or error)
        return None
    logger.info("Serving /report and /metrics on %s:%d", host, http.server_address[1])
    return Server(http)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(
        self, where: tuple[str, int], pages: dict[str, tuple[str, Callable[[], bytes]]], profiler: Profiler | None
    ) -> None:
        self.pages = pages
        self.profiler = profiler
        self._free = threading.BoundedSemaphore(MAX_REQUESTS_AT_ONCE)
        super().__init__(where, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(timeout=REQUEST_SECONDS):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("Request from %s ended early", client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        found = self.server.pages.get(self.path.partition("?")[0])
        if found is None:
            self.send_error(404, explain=f"there are {', '.join(self.server.pages)}")
            return
        self._answer(200, found[0], found[1]())

    def do_POST(self) -> None:
        profiler = self.server.profiler
        if self.path != profiling.PATH or profiler is None:
            self.send_error(404)
            return
        if not self._is_from_here():
            self.send_error(403, explain="profiles are asked for from the machine of the process")
            return
        try:
            length = min(max(0, int(self.headers.get("Content-Length") or 0)), MOST_BODY_BYTES)
            status, told = 202, dict(profiler.request(json.loads(self.rfile.read(length))))
        except ValueError as error:
            status, told = 400, {"message": str(error)}
        except BusyError as error:
            status, told = 409, {"message": str(error)}
        self._answer(status, JSON, json.dumps(told).encode())

    def _is_from_here(self) -> bool:
        """Whether a program of this machine asks, and not a page that a browser has here from somewhere else.

        A browser asks before it sends JSON to another origin, and is refused; by a name that leads here it has the
        wrong Host.
        """
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        is_json = self.headers.get_content_type() == JSON
        return self.client_address[0] == "127.0.0.1" and host in LOOPBACK and is_json

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", page.SECURITY_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
