"""The operator's ports against hundreds of slow clients, under a limit of descriptors, and a loop that hangs."""

import asyncio
import contextlib
import http.client
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest

from tools.localcluster.processes import free_ports
from tpujob_contract.connections.http_server import plain
from tpujob_operator.controller import http as operator_http

SLOW_CLIENTS = 500
SERVE = """
import asyncio, logging, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from tpujob_operator.controller.http import serving
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.base.settings import Settings
logging.basicConfig(level="INFO")

async def main():
    environ = {"OPERATOR_HEALTH_PORT": sys.argv[1], "OPERATOR_METRICS_PORT": sys.argv[2]}
    async with serving(WatchStaleness(), Settings.from_environ(environ)):
        print("listening", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def seconds_of(port: int, path: str) -> float:
    """How long a healthy client waits for a whole answer."""
    since = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    return time.monotonic() - since


def test_healthy_clients_are_answered_beside_hundreds_of_slow_ones():
    health, metrics = free_ports(2)
    with (
        subprocess.Popen(
            [sys.executable, "-c", SERVE, str(health), str(metrics)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as server,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdin is not None
        assert server.stdout.readline() == "listening\n"
        for port in (health, metrics):
            for _ in range(SLOW_CLIENTS // 2):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
                with contextlib.suppress(OSError):
                    client.sendall(b"G")
        for port, path in ((health, "/healthz"), (metrics, "/metrics")):
            waited = sorted(seconds_of(port, path) for _ in range(10))
            assert waited[5] < 1, (path, waited)
        server.stdin.close()
        log = server.stderr.read()
    assert len(log.splitlines()) <= 4, log
    assert log.count("were dropped") <= 2  # one of each port


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/", 405), ("HEAD", "/", 200)],
    ids=["another path", "another method", "a head"],
)
async def test_answers_are_of_known_pages(method, path, status):
    pages = {"/": lambda: plain(200, "ok")}
    async with operator_http.listening(pages, 0, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        assert (await session.request(method, f"http://127.0.0.1:{server.port}{path}")).status == status


async def test_a_loop_that_hangs_is_not_healthy(monkeypatch):
    monkeypatch.setattr(operator_http, "LOOP_SECONDS", 0.2)

    def status(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            return connection.getresponse().status

    pages = {"/healthz": lambda: plain(200, "ok")}
    async with operator_http.listening(pages, 0, host="127.0.0.1") as server:
        assert await asyncio.to_thread(status, server.port) == 200
        with ThreadPoolExecutor(1) as clients:
            # Waits in the loop, and so holds it, as a defect would.
            assert clients.submit(status, server.port).result(timeout=30) == 503
