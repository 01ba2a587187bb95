"""What a test reads of an operator is what the operator said."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.control_plane.operator_process import answered
from tools.localcluster.processes import free_ports


class Late(BaseHTTPRequestHandler):
    """Answers the first request with 503 and those after it with a metric."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, LateServer)
        server.asked += 1
        body = b"" if server.asked == 1 else b"tpujob_operator_leader 1.0\n"
        self.send_response(200 if body else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the base class names it so
        """Says nothing."""


class LateServer(HTTPServer):
    asked = 0


@pytest.fixture
def late() -> Iterator[LateServer]:
    with LateServer(("127.0.0.1", 0), Late) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_metrics_are_awaited(late: LateServer) -> None:
    page = answered(late.server_port, "/metrics", explain=lambda: "")
    assert (page, late.asked) == ("tpujob_operator_leader 1.0\n", 2)


def test_silence_is_no_metric_of_nothing() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TimeoutError, match=f"/metrics of port {port}: its log"):
        answered(port, "/metrics", explain=lambda: "its log", timeout_seconds=0)
