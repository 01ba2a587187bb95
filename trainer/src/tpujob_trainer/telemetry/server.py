"""GET /report, /metrics and the page of this process, on daemon threads, for the operator and for Prometheus."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tpujob_contract.report import PATH
from tpujob_trainer.telemetry import page

logger = logging.getLogger(__name__)

MAX_REQUESTS_AT_ONCE = 8
REQUEST_SECONDS = 5


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
) -> Server | None:
    """A server on `port` (0: any free one), or None when the port is taken: training does not depend on it.

    Args:
        report: What /report answers.
        metrics: What /metrics answers.
        host: The address to listen on.
        port: The port there.
        curve: Step and loss, for the page.
        name: Of the job, for the page.
    """
    pages: dict[str, tuple[str, Callable[[], bytes]]] = {
        "/": ("text/html; charset=utf-8", lambda: page.render(report(), curve(), name=name)),
        PATH: ("application/json", lambda: json.dumps(report()).encode()),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
    }
    try:
        http = _Http((host, port), pages)
    except OSError as error:
        logger.warning("No /report and /metrics: port %d of %s: %s", port, host, error.strerror or error)
        return None
    logger.info("Serving /report and /metrics on %s:%d", host, http.server_address[1])
    return Server(http)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, where: tuple[str, int], pages: dict[str, tuple[str, Callable[[], bytes]]]) -> None:
        self.pages = pages
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
        kind, content = found[0], found[1]()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", page.SECURITY_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
