"""The small server against healthy clients, slow ones, and ones that talk nonsense."""

import contextlib
import http.client
import logging
import socket
import subprocess
import sys
import time

import pytest

from tpujob_contract.connections.http_server import MOST_BODY_BYTES, MOST_HEAD_BYTES, HttpServer, Request, Response

SLOW_CLIENTS = 500


def echo(request: Request) -> Response:
    if request.path == "/broken":
        raise ValueError("broken")
    if request.path == "/no-header":
        return Response(200, "text/plain", b"", (("X-Name", "\N{SNOWMAN}"),))
    content = f"{request.method} {request.path} {request.body.decode()}".encode()
    return Response(200, "text/plain", content * (100_000 if request.path == "/large" else 1))


@pytest.fixture
def serving():
    """Starts servers, and closes them."""
    with contextlib.ExitStack() as stack:

        def start(**options) -> HttpServer:
            server = HttpServer(echo, host="127.0.0.1", port=0, **options)
            stack.callback(server.close)
            server.start()
            return server

        yield start


def ask(server: HttpServer, path: str = "/x?y", method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize(
    ("request_", "status", "content"),
    [
        ({}, 200, b"GET /x "),
        ({"method": "POST", "body": b"hello"}, 200, b"POST /x hello"),
        ({"method": "HEAD"}, 200, b""),
        ({"path": "/broken"}, 500, b"the answer failed; the log of this process has the cause\n"),
    ],
    ids=["GET", "POST", "HEAD", "an answer that fails"],
)
def test_a_request_is_answered(serving, request_, status, content):
    assert ask(serving(), **request_) == (status, content)


def test_a_large_answer_arrives_whole(serving):
    assert ask(serving(), "/large") == (200, b"GET /large " * 100_000)


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MOST_BODY_BYTES + 1),
        *(b"GET / HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % (b"9" * digits) for digits in (4300, 4301, 16_000)),
        b"GET /" + b"x" * (MOST_HEAD_BYTES + 1),
    ],
    ids=["no request", "another version", "a negative length", "a long body", "4300", "4301", "16000", "a long head"],
)
def test_nonsense_is_refused_and_the_next_request_is_answered(serving, said):
    server = serving()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(said)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    assert ask(server) == (200, b"GET /x ")


def test_an_error_of_the_server_itself_ends_one_connection(serving, caplog):
    server = serving()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"GET /no-header HTTP/1.1\r\n\r\n")
        assert client.recv(100) == b""
    assert "UnicodeEncodeError" in caplog.text
    assert ask(server) == (200, b"GET /x ")


def test_a_client_that_sends_a_byte_now_and_then_is_dropped(serving):
    server = serving(request_seconds=0.5)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"GET")
        since = time.monotonic()
        assert client.recv(1) == b""
    assert time.monotonic() - since < 20


def test_what_was_dropped_is_one_warning_a_minute(serving, caplog, monkeypatch):
    server = serving(request_seconds=0.1)
    with caplog.at_level(logging.WARNING), contextlib.ExitStack() as stack:
        for _ in range(5):
            clients = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(4)]
            for client in clients:
                stack.enter_context(client)
                assert client.recv(1) == b""
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"clients of port {server.port} were dropped" in warning


SERVE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tpujob_contract.connections.http_server import HttpServer, Response
server = HttpServer(lambda request: Response(200, "text/plain", b"well"), host="127.0.0.1", port=0)
server.start()
print(server.port, flush=True)
sys.stdin.read()
"""


def test_healthy_clients_are_answered_beside_hundreds_of_slow_ones():
    """Of a process that may open few files: slow ones would use them up."""

    with (
        subprocess.Popen(
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
        contextlib.ExitStack() as stack,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(SLOW_CLIENTS)
        ]
        for client in slow:
            with contextlib.suppress(OSError):
                client.sendall(b"G")
        seconds = []
        for _ in range(20):
            since = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", "/")
                assert connection.getresponse().read() == b"well"
            seconds.append(time.monotonic() - since)
        assert sorted(seconds)[10] < 1, seconds
        assert server.stdin is not None
        server.stdin.close()


def test_a_taken_port_is_an_error_and_a_closed_server_frees_its_own(serving):
    first = serving()
    with pytest.raises(OSError, match="Address already in use"):
        HttpServer(echo, host="127.0.0.1", port=first.port)
    first.close()
    again = HttpServer(echo, host="127.0.0.1", port=first.port)
    again.close()
