"""Servers and clients of connections: HTTP, launcher 0, the other launchers, programs, the operator's report poller.

Whatever arrives on one connection ends that connection at most: the next one is answered, and nothing has to be caught
by the handler of last resort, which logs an error.
"""

import asyncio
import contextlib
import functools
import http.client
import json
import logging
import os
import selectors
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.fuzz.of_jobs import REPORT
from tests.fuzz.target import Target
from tests.harness.launched import JOB
from tpujob_contract import environment
from tpujob_contract.connections.http_server import HttpServer, Request, Response
from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.client import Client
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.peers.server import Server
from tpujob_operator.observe import report_poller

SECONDS = 20.0
REQUEST = {
    "line": "POST /report?of=a HTTP/1.1",
    "headers": {"Host": "localhost:80", "Content-Type": "application/json", "Content-Length": "5"},
    "body": "hello",
}
LAST = {"cause": "crash", "process": 1, "code": 1, "at": 9.5, "line": "a bug", "words": "a bug"}
ACCOUNT = {"counts": {"crash": 1}, "last": LAST}
END = {"process": 1, "code": 1, "at": 1764000000.5, "line": "a bug", "kind": "lost"}
STATE = {"phase": "training", "step": 3, "progress_count": 4, "seconds": 1.5, "where": "a.py:3", "waits": True}
OF_PROGRAM: list[dict[str, Any]] = [
    {"hello": {"heartbeat_seconds": 90, "configuration": "abc", "versions": {"jax": "1"}}},
    {"state": STATE},
    {"asked": {"by": "SIGTERM"}},
    {"failed": {"code": 1, "message": "a bug", "kind": "stalled"}},
    {"bye": {}},
]


def process(number: int) -> DistributedProcess:
    """One of the two processes of a job on this machine, whose lost pods are replaced."""
    place = {"TPUJOB_SLICE": "0", "TPUJOB_HOST": str(number), "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "2"}
    options = {"TPUJOB_IN_PLACE": "3", "TPUJOB_COORDINATOR": "127.0.0.1:1", "TPUJOB_POD_FAILURES": "0"}
    found = read_environment({**JOB, **place, **options})
    assert isinstance(found, DistributedProcess)
    return found


def hello() -> messages.Message:
    """Of launcher 1."""
    return messages.hello(process(1), messages.Standpoint(0, {}, 9.5), "b")


TO_LAUNCHER_0: list[dict[str, Any]] = [
    dict([hello()]),
    {"joined": {"attempt": 0, "configuration": "abc", "versions": {"jax": "1"}}},
    {"progress": {"attempt": 0, "state": STATE}},
    {"asked": {"attempt": 0, "by": "SIGTERM"}},
    {"bye": {"why": "stopping", "at": 9.5}},
    {"heartbeat": {}},
    {"ended": {"attempt": 0, **END}},
    {"ready": {"attempt": 1}},
    {"bye": {"why": "finished"}},
]
MET = {"nonce": "ab", "lead": "a"}
REFUSED = {"error": "ConfigurationError", "message": "different"}
OF_LAUNCHER_0 = [
    {"round": {"attempt": 0, "running": True, "welcome": True}},
    {"heartbeat": {}},
    {"round": {"attempt": 0, "running": True, "met": MET, "asked": "process 1", "refused": REFUSED}},
    {"round": {"attempt": 1, "running": False, "first": {**END, "host": "a"}}},
    {"round": {"attempt": 1, "running": True, "account": ACCOUNT, "over": "enough"}},
]


class _Errors(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@contextlib.contextmanager
def _no_error_logged() -> Iterator[None]:
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.found, errors.found[0]


def _written(value: Any, folder: Path) -> Path:
    (folder / "sent").write_text(json.dumps(value))
    return folder / "sent"


def _lines(content: bytes) -> bytes:
    """A message in each line; what is no list of them is sent as it is."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, list):
            return b"".join(json.dumps(each).encode() + b"\n" for each in found)
    return content + b"\n"


def _request(content: bytes) -> bytes:
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        found = json.loads(content)
        head = "".join(f"{name}: {value}\r\n" for name, value in found["headers"].items())
        text = f"{found['line']}\r\n{head}\r\n{found['body']}"
        return text.encode(errors="surrogatepass")
    return content


@functools.cache
def _http_server() -> HttpServer:
    def echo(request: Request) -> Response:
        return Response(200, "text/plain", repr(request).encode(errors="replace"), (("X-Host", "a"),))

    server = HttpServer(echo, host="127.0.0.1", port=0)
    server.start()
    return server


def _ask(folder: Path) -> None:
    port = _http_server().port
    with (
        _no_error_logged(),
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client,
        contextlib.suppress(OSError),  # a refusal may come before all is sent
    ):
        client.sendall(_request((folder / "sent").read_bytes()))
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(9)
        assert answer in (b"", b"HTTP/1.1 "), answer
    healthy = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with contextlib.closing(healthy):
        healthy.request("GET", "/")
        assert healthy.getresponse().status == 200


def _step(peers: Peers, holds: Callable[[], object]) -> None:
    """Steps until something holds; no step may raise."""
    with _no_error_logged(), selectors.DefaultSelector() as selector:
        selector.register(peers, selectors.EVENT_READ)
        while not holds():
            assert selector.select(SECONDS), "nothing happens"
            peers.step()


def _tell_launcher_0(folder: Path) -> None:
    server = Server(process(0), port=0)
    with contextlib.closing(server), contextlib.ExitStack() as stack:
        for content in (_lines((folder / "sent").read_bytes()), messages.to_line(hello())):
            sock = stack.enter_context(socket.create_connection(server.lines._listener.getsockname(), timeout=SECONDS))
            with contextlib.suppress(OSError):
                sock.sendall(content)
                sock.shutdown(socket.SHUT_WR)
            _step(server, lambda: server.lines._lines)
            _step(server, lambda: not server.lines._lines)
        assert server.round.hosts[1], "the next launcher is not taken"


def _tell_a_launcher(folder: Path) -> None:
    client = Client(process(1), "127.0.0.1", 1)
    mine, others = socket.socketpair()
    with contextlib.closing(client), others:
        mine.setblocking(False)
        client._is_connecting = True  # it does not connect by itself
        client._arrived.append(mine)
        os.write(client._wake_writer, b"c")
        _step(client, lambda: client._sock is mine)
        others.settimeout(SECONDS)
        with contextlib.suppress(OSError):
            others.sendall(_lines((folder / "sent").read_bytes()))
        client._is_connecting = True
        others.shutdown(socket.SHUT_WR)
        _step(client, lambda: client._sock is None)
        client.fail(1, 0.0, "its program fails, too")


def _speak(folder: Path) -> None:
    # The name of a socket is short.
    with tempfile.TemporaryDirectory() as short, contextlib.closing(Server(process(0), 0, Path(short))) as server:
        for content in (_lines((folder / "sent").read_bytes()), json.dumps(OF_PROGRAM[0]).encode() + b"\n"):
            with socket.socket(socket.AF_UNIX) as program:
                program.connect(server.program.variables[environment.PEERS_SOCKET])
                program.settimeout(SECONDS)
                with contextlib.suppress(OSError):
                    program.sendall(content)
                    program.shutdown(socket.SHUT_WR)
                _step(server, lambda: server.program._sock)
                _step(server, lambda: server.program._sock is None)
        assert server.program.hello == OF_PROGRAM[0]["hello"], "the next program is refused"


def _report(folder: Path) -> Path:
    body = json.dumps({**REPORT, "in_place": ACCOUNT})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    (folder / "sent").write_text(head + body)
    return folder / "sent"


def _poll(folder: Path) -> None:
    async def answered(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write((folder / "sent").read_bytes())
            await writer.drain()
        writer.close()

    async def poll() -> None:
        server = await asyncio.start_server(answered, "127.0.0.1", 0)
        async with server, aiohttp.ClientSession() as session:
            port = server.sockets[0].getsockname()[1]
            json.dumps(str(await report_poller.ask(session, f"http://127.0.0.1:{port}/report")))

    with _no_error_logged():
        asyncio.run(poll())


TARGETS = (
    Target("request of HTTP", functools.partial(_written, REQUEST), _ask, (), is_json=True),
    Target("lines to launcher 0", functools.partial(_written, TO_LAUNCHER_0), _tell_launcher_0, (), is_json=True),
    Target("lines of launcher 0", functools.partial(_written, OF_LAUNCHER_0), _tell_a_launcher, (), is_json=True),
    Target("lines of a program", functools.partial(_written, OF_PROGRAM), _speak, (), is_json=True),
    Target("answer to the report poller", _report, _poll, ()),
)
