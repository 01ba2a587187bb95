import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from tpujob_contract.connections import http_server
from tpujob_trainer.telemetry import server


@pytest.fixture
def running():
    found = server.serve(lambda: {"step": 3}, lambda: b"tpujob_step 3.0\n", host="127.0.0.1", port=0)
    assert found is not None
    yield found
    found.close()


def get(running, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{running.port}{path}", timeout=60)


def test_report_is_json(running):
    with get(running, "/report") as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert json.load(answer) == {"step": 3}


def test_metrics_are_text(running):
    with get(running, "/metrics?name=x") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert answer.read() == b"tpujob_step 3.0\n"


@pytest.mark.parametrize("path", ["/page", "/reports", "/../etc/passwd"])
def test_other_paths_are_not_found(path, running):
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(running, path)
    assert caught.value.code == 404
    caught.value.close()


def test_taken_port_is_a_warning(running, caplog):
    assert server.serve(dict, bytes, host="127.0.0.1", port=running.port) is None
    assert f"port {running.port}" in caplog.text


def test_idle_connections_do_not_keep_others_out(running):
    idle = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(500)]
    try:
        with get(running, "/report") as answer:
            assert answer.status == 200
    finally:
        for connection in idle:
            connection.close()


def test_threads_do_not_keep_a_process_alive(running):
    assert all(t.daemon for t in threading.enumerate() if t.name == http_server.THREAD)


def test_outside_a_pod_only_this_machine_may_ask():
    assert http_server.address(in_pod=False) == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_report_of_a_pod_is_served_to_both_families(host):
    """A pod of a cluster without IPv4 has an address of IPv6 alone."""
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    server = http_server.serve({}, host=http_server.address(in_pod=True), port=0)
    assert server is not None
    with contextlib.closing(server):
        socket.create_connection((host, server.port), timeout=10).close()
