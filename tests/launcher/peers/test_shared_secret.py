"""A stranger who can guess all but the secret says nothing to launcher 0."""

import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.peers.test_first_failure import Start, start
from tests.launcher.peers.test_releases import heard
from tests.launcher.peers.test_server import address, has_member, member
from tools.localcluster.waiting import wait_for
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.server import Server

__all__ = ["start"]

SECRET = "kept-by-the-pods"
ENDED: messages.Message = ("ended", {"attempt": 0, "code": 77, "at": 1.0, "line": "a stranger's words"})


def guess(**values: Any) -> bytes:
    """All that a stranger can know, and an end that is never retried."""
    kind, known = messages.hello(member(1), host="evil")
    return messages.to_line((kind, {**known, **values})) + messages.to_line(ENDED)


def test_a_stranger_ends_no_job(start: Start, tmp_path: Path) -> None:
    sees = "(here / ('sees-' + os.environ['TPUJOB_HOST'])).write_text(os.environ.get('TPUJOB_SECRET', 'nothing'))"
    launched = start(before=sees, TPUJOB_SECRET=SECRET)
    environ = Path(f"/proc/{launched[0].pid}/environ").read_bytes().split(b"\0")
    (port,) = (each.partition(b"=")[2] for each in environ if each.startswith(b"TPUJOB_LAUNCHER_PORT="))
    with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as stranger:
        stranger.sendall(guess())
        assert stranger.recv(1024) == b"", "it is told nothing"
    launched[0].wait_until_said("no message with this job's secret (TPUJOB_SECRET)")
    for each in launched:
        each.send(signal.SIGTERM)
    assert [each.wait() for each in launched] == [143, 143]
    assert [(tmp_path / f"sees-{host}").read_text() for host in range(2)] == ["nothing"] * 2
    said = "".join([each.stdout + each.stderr + each.message_file.read_text() for each in launched])
    assert SECRET not in said
    assert "stranger's words" not in said


@pytest.mark.parametrize("shown", [None, "", SECRET[:-1], SECRET + " ", 7, [SECRET], {"a": SECRET}, "\ud800"], ids=str)
@pytest.mark.parametrize("version", [messages.VERSION, messages.VERSION + 1], ids=["this release", "another one"])
def test_nothing_of_one_without_the_secret_is_believed(shown: Any, version: int) -> None:
    server = Server(member(0, TPUJOB_SECRET=SECRET), port=0)
    try:
        with socket.create_connection(address(server)) as stranger:
            stranger.sendall(guess(secret=shown, version=version))
            assert heard(server, stranger) == {}
        assert (server.state.first, server.state.refused, server.state.over) == (None, None, None)
    finally:
        server.close()


@pytest.mark.parametrize("secret", [SECRET, ""], ids=["with a secret", "of an operator of an earlier release"])
def test_a_launcher_of_the_job_is_heard(secret: str) -> None:
    server = Server(member(0, TPUJOB_SECRET=secret), port=0)
    try:
        with socket.create_connection(address(server)) as launcher:
            launcher.sendall(messages.to_line(messages.hello(member(1, TPUJOB_SECRET=secret))))
            wait_for("the launcher", lambda: has_member(server))
    finally:
        server.close()
