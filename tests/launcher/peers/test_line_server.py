"""A listener that may have no further connection, and a member that comes again."""

import resource
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from tools.localcluster.waiting import wait_for
from tpujob_contract import ports
from tpujob_launcher.peers.line_server import Line, LineServer


class Members(LineServer):
    """Each says its number."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(listener, selectors.DefaultSelector(), 8, on_line=self.hear, on_loss=self.gone)
        self.lost: list[int | None] = []

    def hear(self, line: Line, text: bytes) -> str | None:
        self.identify(line, int(text))
        return None

    def gone(self, line: Line, why: str) -> None:
        self.lost.append(line.member)


@pytest.fixture
def members() -> Iterator[Members]:
    made = Members(ports.listener("127.0.0.1", 0))
    yield made
    made.close()


@pytest.fixture
def no_files() -> Iterator[None]:
    """No descriptor can be had from here on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def comers(members: Members, number: int) -> list[socket.socket]:
    return [socket.create_connection(members._listener.getsockname(), timeout=30) for _ in range(number)]


def test_a_connection_without_a_descriptor_is_closed_and_may_come_again(
    members: Members, request: pytest.FixtureRequest
) -> None:
    first, second = comers(members, 2)
    request.getfixturevalue("no_files")
    members.poll(0)
    assert (first.recv(1), second.recv(1)) == (b"", b"")
    assert members._connections.select(0) == [], "it would be looked at for ever"
    first.close()
    second.close()


def test_an_error_of_one_connection_ends_that_one(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    first, second = comers(members, 2)
    first.sendall(b"no number\n")
    second.sendall(b"3\n")

    def has_both() -> bool:
        members.poll(0.1)
        return bool(members.lost and members.members)

    wait_for("both", has_both)
    assert (members.lost, list(members.members)) == ([None], [3])
    assert "ValueError" in caplog.text
    first.close()
    second.close()


def test_the_newer_connection_of_a_member_takes_its_place(members: Members) -> None:
    old, new = comers(members, 2)

    def has(condition: Callable[[], bool]) -> bool:
        members.poll(0.1)
        return condition()

    old.sendall(b"3\n")
    wait_for("the older one", lambda: has(lambda: bool(members.members)))
    new.sendall(b"3\n")
    wait_for("the newer one", lambda: has(lambda: members.lost == [3]))
    assert list(members.members) == [3]
    members.send_all(b"all\n")
    assert (old.recv(10), new.recv(10)) == (b"", b"all\n")
    old.close()
    new.close()
