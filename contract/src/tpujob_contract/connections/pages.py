"""HTTP pages that a process serves about itself: trainers do, and launchers for programs that serve none."""

import logging
from typing import Callable, Mapping, Optional, Sequence, Tuple

from tpujob_contract import ports
from tpujob_contract.connections.http_server import Handler, HttpServer, Request, Response, plain

logger = logging.getLogger(__name__)

JSON = "application/json"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""
METRICS_PATH = "/metrics"

Page = Tuple[str, Callable[[], bytes]]
"""Its content type, and a function that returns its content."""


def address(*, in_pod: bool) -> str:
    """The address to listen on: in a pod all, of IPv6, too, where a NetworkPolicy limits access; else this machine."""
    return ports.EVERY_ADDRESS if in_pod else "127.0.0.1"


def serve(
    pages: Mapping[str, Page],
    *,
    host: str,
    port: int,
    headers: Sequence[Tuple[str, str]] = (),
    post: Optional[Handler] = None,
) -> Optional[HttpServer]:
    """A running server; None: the port is taken, which is logged, because the program does not depend on it.

    Args:
        pages: By path.
        host: The address to listen on.
        port: The port to listen on; 0: any free one.
        headers: Additional headers of each page.
        post: Handles POST; None: POST is refused.
    """

    def answer(request: Request) -> Response:
        if request.method == "POST" and post is not None:
            return post(request)
        if request.method not in ("GET", "HEAD"):
            return plain(405, "GET and POST alone are answered here" if post else "GET alone is answered here")
        found = pages.get(request.path)
        if found is None:
            return plain(404, f"there are {', '.join(pages)}")
        return Response(200, found[0], found[1](), tuple(headers))

    try:
        server = HttpServer(answer, host=host, port=port)
    except OSError as error:
        logger.warning("No %s: port %d of %s: %s", " and ".join(pages), port, host, error.strerror or error)
        return None
    server.start()
    logger.info("Serving %s on %s:%d", " and ".join(pages), host, server.port)
    return server
