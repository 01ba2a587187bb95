"""What a test reads of an operator is what the operator said."""

import pytest

from tests.fakes import Exchange, HttpServer
from tests.harness.operator_process import answered
from tools.localcluster.processes import free_ports


def test_metrics_are_awaited() -> None:
    """The first request is answered with 503, those after it with a metric."""
    bodies = iter([b"", b"tpujob_operator_leader 1.0\n"])

    def late(exchange: Exchange) -> None:
        body = next(bodies)
        exchange.reply(200 if body else 503, body)

    with HttpServer(late) as server:
        page = answered(server.server_port, "/metrics", explain=lambda: "")
    assert (page, list(bodies)) == ("tpujob_operator_leader 1.0\n", [])


def test_silence_is_no_metric_of_nothing() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TimeoutError, match=f"/metrics of port {port}: its log"):
        answered(port, "/metrics", explain=lambda: "its log", timeout_seconds=0)
