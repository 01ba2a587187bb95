"""GET /report and /metrics of a program that serves neither, for the operator and for Prometheus.

The metrics have the trainer's names, so that dashboards and alerts show such a run as any other.
"""

from __future__ import annotations

import http.server
import json
import logging
import threading
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

from tpujob_contract.report import PATH

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 5
GAUGES = {
    "step": "tpujob_step",
    "steps": "tpujob_steps",
    "loss": "tpujob_loss",
    "gradient_norm": "tpujob_gradient_norm",
    "evaluation_loss": "tpujob_evaluation_loss",
    "evaluation_step": "tpujob_evaluation_step",
    "tokens_per_second": "tpujob_tokens_per_second",
    "committed_step": "tpujob_checkpoint_committed_step",
    "committed_time": "tpujob_checkpoint_committed_timestamp_seconds",
    "restored_from": "tpujob_restored_from_step",
}
"""Field of a report → gauge; absent while the field is not known."""


class ReportServer(http.server.ThreadingHTTPServer):
    """Serves on a daemon thread until `close`."""

    daemon_threads = True

    def __init__(self, report: Callable[[], Mapping[str, Any]], *, host: str, port: int) -> None:
        """Listens; `start` begins to answer.

        Raises:
            OSError: the port is taken.
        """
        super().__init__((host, port), _Handler)
        self.report = report

    def start(self) -> None:
        """Begins to answer."""
        threading.Thread(target=self.serve_forever, name="report-server", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is nobody's concern."""
        logger.debug("request from %s ended early", client_address)


def exposition(report: Mapping[str, Any]) -> bytes:
    """The gauges of a report in Prometheus' text format."""
    return "".join(_samples(report)).encode()


def serve(report: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], port: int) -> Optional[ReportServer]:
    """A server that answers, or None where the port is taken: the program does not depend on it.

    In a pod it listens on all interfaces, where a NetworkPolicy decides who may come; elsewhere on this machine alone.
    """
    host = "0.0.0.0" if "KUBERNETES_SERVICE_HOST" in environ else "127.0.0.1"  # noqa: S104
    try:
        server = ReportServer(report, host=host, port=port)
    except OSError as error:
        logger.warning("no /report and /metrics: port %d of %s: %s", port, host, error.strerror or error)
        return None
    server.start()
    return server


def _samples(report: Mapping[str, Any]) -> Iterator[str]:
    for field, name in GAUGES.items():
        value = report.get(field)
        if isinstance(value, (int, float)):
            yield f"# TYPE {name} gauge\n{name} {float(value)!r}\n"
    yield f'# TYPE tpujob_phase gauge\ntpujob_phase{{phase="{report["phase"]}"}} 1.0\n'


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ReportServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        report = self.server.report()
        pages: Dict[str, Any] = {
            PATH: ("application/json", lambda: json.dumps(report).encode()),
            "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: exposition(report)),
        }
        found = pages.get(self.path.partition("?")[0])
        if found is None:
            self.send_error(404, explain=f"there are {', '.join(pages)}")
            return
        content = found[1]()
        self.send_response(200)
        self.send_header("Content-Type", found[0])
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
