"""GET /report, /metrics and the page of this process, for the operator and for Prometheus.

POST /profile is for this machine alone, and not for the pages of a browser there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_contract import profiling
from tpujob_contract.connections.http_server import Handler, HttpServer, Request, Response, plain
from tpujob_contract.reports.report import PATH
from tpujob_trainer.telemetry import page
from tpujob_trainer.telemetry.profiler import BusyError, Profiler

logger = logging.getLogger(__name__)

JSON = "application/json"
POLICY = (("Content-Security-Policy", page.SECURITY_POLICY),)
LOOPBACK = ("127.0.0.1", "localhost")


def address(*, in_pod: bool) -> str:
    """All interfaces in a pod, where a NetworkPolicy decides who may come; this machine alone elsewhere."""
    return "0.0.0.0" if in_pod else "127.0.0.1"  # noqa: S104


def serve(
    report: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], bytes],
    *,
    host: str,
    port: int,
    curve: Callable[[], page.Points] = lambda: (),
    name: str = "",
    profiler: Profiler | None = None,
) -> HttpServer | None:
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
        server = HttpServer(_handler(pages, profiler), host=host, port=port)
    except OSError as error:
        logger.warning("No /report and /metrics: port %d of %s: %s", port, host, error.strerror or error)
        return None
    server.start()
    logger.info("Serving /report and /metrics on %s:%d", host, server.port)
    return server


def _handler(pages: Mapping[str, tuple[str, Callable[[], bytes]]], profiler: Profiler | None) -> Handler:
    """Answers with these pages, and takes requests for profiles."""

    def answer(request: Request) -> Response:
        if request.method == "POST":
            return _profile(request, profiler)
        if request.method not in ("GET", "HEAD"):
            return plain(405, "GET and POST alone are answered here")
        found = pages.get(request.path)
        if found is None:
            return plain(404, f"there are {', '.join(pages)}")
        return Response(200, found[0], found[1](), POLICY)

    return answer


def _profile(request: Request, profiler: Profiler | None) -> Response:
    if request.path != profiling.PATH or profiler is None:
        return plain(404, f"there is no {request.path} to post to")
    if not _is_from_here(request):
        return plain(403, "profiles are asked for from the machine of the process")
    try:
        status, told = 202, dict(profiler.request(json.loads(request.body)))
    except ValueError as error:
        status, told = 400, {"message": str(error)}
    except BusyError as error:
        status, told = 409, {"message": str(error)}
    return Response(status, JSON, json.dumps(told).encode())


def _is_from_here(request: Request) -> bool:
    """Whether a program of this machine asks, and not a page that a browser has here from somewhere else.

    A browser asks before it sends JSON to another origin, and is refused; by a name that leads here it has the
    wrong Host.
    """
    host = request.headers.get("host", "").rpartition(":")[0]
    is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON
    return request.client == "127.0.0.1" and host in LOOPBACK and is_json
