"""The local socket with both of its real ends: a launcher's, and a trainer's in a thread."""

import concurrent.futures
import contextlib
import os
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.localcluster.waiting import wait_for
from tpujob_contract.environment import PEERS_SOCKET
from tpujob_launcher.peers.messages import Message
from tpujob_launcher.peers.program import LIMIT_BYTES, ProgramLine
from tpujob_trainer.distributed import peers
from tpujob_trainer.distributed.peers import End, Membership, Peers
from tpujob_trainer.values import errors

HEARD_SECONDS = 60
LOST: dict[str, Any] = {"process": 0, "code": 1, "message": "lost process 0 on host a: silent for 30 s", "kind": "lost"}
Met = concurrent.futures.Future[tuple[Membership, Peers]]


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ProgramLine]:
    made = ProgramLine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def met(line: ProgramLine) -> Iterator[Met]:
    """What process 1 of 3 gets, which has said hello."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        about: dict[str, Any] = {"configuration": "c0ffee", "versions": {"jax": "1"}, "heartbeat_seconds": 50}
        yield pool.submit(peers.meet, 1, 3, line.variables[PEERS_SOCKET], **about)


def heard(line: ProgramLine, kind: str) -> dict[str, Any]:
    found: list[Message] = []

    def has_come() -> bool:
        found.extend(line.receive())
        return any(each == kind for each, _ in found)

    wait_for(kind, has_come)
    return dict(next(values for each, values in found if each == kind))


def test_a_trainer_meets_says_how_far_it_is_and_hears_of_an_end(line: ProgramLine, met: Met) -> None:
    assert heard(line, "hello")["configuration"] == "c0ffee"
    assert line.is_connected
    line.send(("waiting", {"of": "a later release"}))
    line.send(("met", {"nonce": "9f3a01bc", "lead": "a"}))
    membership, found = met.result(HEARD_SECONDS)
    assert membership == Membership("9f3a01bc", ("a", socket.gethostname(), ""))
    ends: queue.Queue[End] = queue.Queue()
    found.start(on_failure=ends.put)
    assert heard(line, "state")["phase"] == "starting"
    line.send(("end", {"of": "another form"}))
    line.send(("asked", {"who": "SIGTERM at process 2 on host c"}))
    line.send(("end", LOST))
    assert ends.get(timeout=HEARD_SECONDS) == End(**LOST)
    assert found.asked == "SIGTERM at process 2 on host c"
    assert found.fail(End(1, 3, "a bug")) == End(**LOST), "the first end is everybody's"
    assert heard(line, "failed") == {"code": 3, "message": "a bug", "kind": "failed"}
    found.disconnect()
    heard(line, "bye")
    assert not line.is_connected, "from here on its silence is no loss"


@pytest.mark.parametrize(
    ("said", "error", "code"),
    [
        (("refused", {"error": "PeersMissingError", "message": "2 of 3"}), errors.PeersMissingError, 80),
        (("refused", {"error": "ConfigurationError", "message": "jax 1"}), errors.ConfigurationError, 78),
        (("end", {**LOST, "code": 76, "kind": "failed"}), peers.EndedByAnotherError, 76),
    ],
)
def test_who_does_not_meet_ends_with_the_words_of_all(
    line: ProgramLine, met: Met, said: Message, error: type[errors.TrainerError], code: int
) -> None:
    heard(line, "hello")
    line.send(said)
    found = met.exception(HEARD_SECONDS)
    assert type(found) is error
    assert found.exit_code == code
    assert found.is_shared == (error is peers.EndedByAnotherError)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"[" * 10_000 + b"\n", b"x" * (LIMIT_BYTES + 1), b""])
def test_what_cannot_be_read_is_dropped(line: ProgramLine, noise: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as program:
        program.connect(line.variables[PEERS_SOCKET])
        program.setblocking(False)
        program.send(noise)
        for _ in range(3):
            assert line.receive() == []
    assert not line.is_connected


def test_a_program_that_never_stops_speaking_is_heard_a_piece_at_a_time(line: ProgramLine) -> None:
    """Its launcher has signals and other launchers to hear."""
    chunks = iter([b'{"state": {}}\n' * 3])
    endless = cast("socket.socket", SimpleNamespace(recv=lambda size: next(chunks)))
    assert len(line._read(endless)) == 3


WORKER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    line.sendall(b'{"hello": {"who": "worker"}}\\n')
    print("connected", flush=True)
    try:
        exec(sys.argv[2])
    except ConnectionResetError:  # it was refused, and its hello was not read
        pass
"""


@contextlib.contextmanager
def worker(line: ProgramLine, then: str = "line.recv(1)") -> Iterator[subprocess.Popen[str]]:
    """Another process, such as one that a program has started to load its data; it has said hello."""
    command = [sys.executable, "-I", "-S", "-c", WORKER, line.variables[PEERS_SOCKET], then]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def program(line: ProgramLine) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(line.variables[PEERS_SOCKET])
        connected.sendall(b'{"hello": {"who": "program"}}\n')
        yield connected


def test_a_second_process_does_not_take_the_place_of_the_program(line: ProgramLine) -> None:
    with program(line) as connected:
        assert heard(line, "hello")["who"] == "program"
        with worker(line) as other:
            line.receive()
            assert other.wait(HEARD_SECONDS) is not None, "it is refused, and does not wait for an answer"
        connected.sendall(b'{"state": {"step": 7}}\n')
        assert heard(line, "state") == {"step": 7}
        assert line.is_connected
        line.send(("asked", {"who": "you"}))
        assert connected.recv(100) == b'{"asked": {"who": "you"}}\n'


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux tells whose a connection is")
def test_the_process_that_the_launcher_has_started_comes_before_any_other(line: ProgramLine) -> None:
    with worker(line):
        assert heard(line, "hello")["who"] == "worker"
        line.child = os.getpid()
        with program(line):
            assert heard(line, "hello")["who"] == "program"
            with worker(line) as late:
                line.receive()
                assert late.wait(HEARD_SECONDS) is not None
            assert line.hello == {"who": "program"}


def test_a_program_that_a_script_starts_again_is_heard_and_so_is_the_last_word_of_the_one_before(
    line: ProgramLine,
) -> None:
    with worker(line, "line.recv(1); line.sendall(b'{\"bye\": {}}\\n')") as first:
        assert heard(line, "hello")["who"] == "worker"
        line.send(("end", LOST))
        assert first.wait(HEARD_SECONDS) == 0
    with program(line):
        found = [kind for _ in range(3) for kind, _ in line.receive()]
        assert found == ["bye", "hello"]
        assert line.is_connected
