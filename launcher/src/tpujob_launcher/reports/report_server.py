"""GET /report and /metrics of a program that serves neither, for the operator and for Prometheus.

The metrics have the trainer's names, so that dashboards and alerts show such a run as any other.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Callable, Iterator, Mapping, Optional

from tpujob_contract.connections.http_server import HttpServer, Request, Response, plain
from tpujob_contract.reports.report import PATH

logger = logging.getLogger(__name__)

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


def exposition(report: Mapping[str, Any]) -> bytes:
    """The gauges of a report in Prometheus' text format."""
    return "".join(_samples(report)).encode()


def answer(request: Request, report: Mapping[str, Any]) -> Response:
    """The requested page."""
    if request.method not in ("GET", "HEAD"):
        return plain(405, "GET alone is answered here")
    if request.path == PATH:
        return Response(200, "application/json", json.dumps(report).encode())
    if request.path == "/metrics":
        return Response(200, "text/plain; version=0.0.4; charset=utf-8", exposition(report))
    return plain(404, f"there are {PATH}, /metrics")


def serve(report: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], port: int) -> Optional[HttpServer]:
    """A server that answers, or None where the port is taken: the program does not depend on it.

    In a pod it listens on all interfaces, where a NetworkPolicy decides who may come; elsewhere on this machine alone.
    """
    host = "0.0.0.0" if "KUBERNETES_SERVICE_HOST" in environ else "127.0.0.1"  # noqa: S104
    try:
        server = HttpServer(lambda request: answer(request, report()), host=host, port=port)
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
