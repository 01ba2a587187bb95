"""Serves /report, /metrics and the page of this process, for the operator and for Prometheus.

Only programs of this machine that know the job's secret, if it has one, may POST /profile, and no web pages.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_contract import environment, profiling, shared_secret
from tpujob_contract.connections import http_server
from tpujob_contract.connections.http_server import JSON, HttpServer, Page, Request, Response, plain
from tpujob_contract.reports.report import PATH
from tpujob_trainer.telemetry import page
from tpujob_trainer.telemetry.profiler import BusyError, Profiler

POLICY = (("Content-Security-Policy", page.SECURITY_POLICY),)
LOOPBACK = ("127.0.0.1", "localhost")


def serve(
    report: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], bytes],
    *,
    host: str,
    port: int,
    curve: Callable[[], page.Points] = lambda: (),
    name: str = "",
    profiler: Profiler | None = None,
    secret: str = "",
) -> HttpServer | None:
    """A server on `port` (0: any free one); None: the port is taken, and training continues without it.

    Args:
        report: Returns the content of /report.
        metrics: Returns the content of /metrics.
        host: The address to listen on.
        port: The port to listen on.
        curve: Returns step and loss, for the page.
        name: Of the job, for the page.
        profiler: Takes profiles; None: /profile does not exist.
        secret: What a request for a profile has to show; empty: nothing.
    """
    served: dict[str, Page] = {
        "/": ("text/html; charset=utf-8", lambda: page.render(report(), curve(), name=name)),
        PATH: (JSON, lambda: json.dumps(report()).encode()),
        http_server.METRICS_PATH: (http_server.EXPOSITION, metrics),
    }
    if profiler:
        served[profiling.PATH] = (JSON, lambda: json.dumps(profiler.state()).encode())
    return http_server.serve(
        served, host=host, port=port, headers=POLICY, post=lambda request: _profile(request, profiler, secret)
    )


def _profile(request: Request, profiler: Profiler | None, secret: str) -> Response:
    if request.path != profiling.PATH or profiler is None:
        return plain(404, f"there is no {request.path} to post to")
    if not _is_from_here(request):
        return plain(403, "profiles are asked for from the machine of the process")
    if not shared_secret.is_known(secret, request.headers.get("authorization", "").removeprefix(profiling.SCHEME)):
        words = f"profiles are asked for with the secret of the job ({environment.SECRET})"
        return Response(403, JSON, json.dumps({"message": words}).encode())
    try:
        status, told = 202, dict(profiler.request(json.loads(request.body)))
    except (ValueError, RecursionError) as error:
        status, told = 400, {"message": str(error)}
    except BusyError as error:
        status, told = 409, {"message": str(error)}
    return Response(status, JSON, json.dumps(told).encode())


def _is_from_here(request: Request) -> bool:
    """Whether a program of this machine sent the request, and not a web page in a browser on this machine.

    A browser sends a preflight request before it sends JSON to another origin, which is refused; if a name was made to
    resolve to this machine, the Host header is wrong.
    """
    host = request.headers.get("host", "").rpartition(":")[0]
    is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON
    return request.client == "127.0.0.1" and host in LOOPBACK and is_json
