"""Two thousand members meet one real server: each is a coroutine with a socket of its own, in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tools.localcluster.processes import free_ports
from tpujob_trainer import errors
from tpujob_trainer.distributed import rendezvous_client, rendezvous_server
from tpujob_trainer.distributed.rendezvous_messages import Hello, Membership, to_line
from tpujob_trainer.distributed.rendezvous_server import Met

logger = logging.getLogger(__name__)

SIZE = 2000
SLOW = 100
"""Members that read nothing for a second after the others have met."""


def hello(process_id: int) -> Hello:
    host = f"gke-cluster-training-pool-{process_id // 16:04d}-{process_id * 7919 % 65536:04x}-slice-{process_id // 16}"
    return Hello(process_id, "team/large incarnation 1 attempt 0", host, "c0ffee", {"jax": "1.0"}, f"{process_id:016x}")


@dataclasses.dataclass
class Server:
    """Process 0, in a thread."""

    port: int
    size: int
    limit_seconds: float = 300.0
    met: Met | None = None
    error: Exception | None = None
    cpu_seconds: float = 0.0

    def run(self) -> None:
        began = time.thread_time()
        positions = [f"slice {i // 16}, host {i % 16}" for i in range(self.size)]
        there = {"host": "127.0.0.1", "port": self.port}
        try:
            self.met = rendezvous_client.receive(hello(0), positions, **there, limit_seconds=self.limit_seconds)  # type: ignore[arg-type]
        except errors.TrainerError as error:
            self.error = error
        self.cpu_seconds = time.thread_time() - began


@pytest.fixture(autouse=True)
def _files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SIZE + 200:
        pytest.skip(f"needs {2 * SIZE + 200} open files, and this account may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SIZE + 200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 100
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=100)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


async def member(number: int, port: int, met: asyncio.Event) -> tuple[Membership | None, int]:
    """The membership it gets, if any, and the bytes that it was sent."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    for _ in range(2000):
        try:
            await loop.sock_connect(sock, ("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**20)
    try:
        writer.write(to_line(dataclasses.asdict(hello(number))))
        heard = 0
        if number <= SLOW:
            await met.wait()
        while line := await reader.readline():
            heard += len(line)
            said = json.loads(line)
            if "nonce" in said:
                met.set()
                return Membership.of_values(said, hello(number)), heard
        return None, heard
    finally:
        writer.close()


async def members(port: int, numbers: range) -> list[tuple[Membership | None, int]]:
    met = asyncio.Event()
    return await asyncio.gather(*(member(number, port, met) for number in numbers))


def test_all_of_two_thousand_get_the_membership() -> None:
    server = Server(free_ports(1)[0], SIZE)
    thread = threading.Thread(target=server.run)
    began = time.monotonic()
    thread.start()
    found = asyncio.run(members(server.port, range(1, SIZE)))
    thread.join(300)
    seconds = time.monotonic() - began
    assert server.error is None
    assert server.met is not None
    membership, lines = server.met
    for line in lines.values():
        line.close()
    assert sorted(lines) == list(range(1, SIZE))
    assert {each.nonce for each, _ in found if each} == {membership.nonce}
    assert all(each and len(each.hosts) == SIZE for each, _ in found)
    assert membership.hosts == tuple(hello(number).host for number in range(SIZE))
    sent = sum(heard for _, heard in found)
    logger.info(
        "%d members in %.1f s, %.2f s of CPU of process 0, %.1f MB sent", SIZE, seconds, server.cpu_seconds, sent / 1e6
    )
    # Nobody is sent all names, which would be 100 KB for each.
    assert sent < SIZE * 20_000
    assert server.cpu_seconds < 20


def test_what_a_socket_does_not_take_at_once_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"nonce": "1", "processes": 2, "lead": "A" * 8_000_000}
    monkeypatch.setattr(Membership, "to_values", lambda self: long)
    monkeypatch.setattr(rendezvous_client, "MAX_ANSWER_BYTES", 2**24)
    server = Server(free_ports(1)[0], 2)
    thread = threading.Thread(target=server.run)
    thread.start()
    met, lines = rendezvous_client.report_to(hello(1), "", host="127.0.0.1", port=server.port, limit_seconds=300)
    thread.join(300)
    assert server.error is None
    assert len(met.hosts[0]) == 8_000_000
    assert server.met is not None
    for line in (*lines.values(), *server.met[1].values()):
        line.close()


def test_member_that_never_reads_its_membership_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "to_values", lambda self: {"nonce": self.nonce, "lead": "A" * 8_000_000})
    monkeypatch.setattr(rendezvous_server, "DELIVERY_SECONDS", 0.3)
    server = Server(free_ports(1)[0], 2)
    thread = threading.Thread(target=server.run)
    thread.start()
    silent = connected(server.port)
    with silent:
        silent.sendall(to_line(dataclasses.asdict(hello(1))))
        thread.join(300)
    assert "1 of 2 processes did not come within 300 s: process 1 (slice 0, host 1)" in str(server.error)


def test_thousands_that_are_missing_are_counted() -> None:
    server = Server(free_ports(1)[0], SIZE, limit_seconds=0.1)
    server.run()
    assert str(server.error).startswith(
        "1999 of 2000 processes did not come within 0.1 s: process 1 (slice 0, host 1), "
    )
    assert "process 20 (slice 1, host 4) and 1979 more; see whether" in str(server.error)
