"""Launcher 0's own side, without a process: who is heard, and where it listens."""

import errno
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.launched import JOB
from tools.localcluster.waiting import wait_for
from tpujob_contract.environment import DistributedProcess, read_environment
from tpujob_launcher import main
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.client import RETRY_SECONDS, Client
from tpujob_launcher.peers.line_server import IDENTIFY_SECONDS, MAX_LINE_BYTES, MAX_UNIDENTIFIED, is_unreachable
from tpujob_launcher.peers.peers import LEAST_HEARTBEAT_SECONDS, Peers
from tpujob_launcher.peers.server import Server
from tpujob_launcher.peers.timing import HEARTBEAT_SECONDS, RECONNECT_SECONDS, UNCONNECTED_SECONDS
from tpujob_launcher.supervise import tpu
from tpujob_launcher.supervise.outcome import ExitResult, Refused
from tpujob_launcher.supervise.rendezvous import announce_end
from tpujob_launcher.supervise.signals import SignalQueue
from tpujob_launcher.supervise.tpu import TpuFiles


def member(host: int, **more: str) -> DistributedProcess:
    """A process of a job of two hosts on this machine."""
    place = {"TPUJOB_SLICE": "0", "TPUJOB_HOST": str(host), "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "2"}
    options = {"TPUJOB_IN_PLACE": "3", "TPUJOB_COORDINATOR": "127.0.0.1:1", **more}
    process = read_environment({**JOB, **place, **options})
    assert isinstance(process, DistributedProcess)
    return process


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(member(0), port=0)
    yield made
    made.close()


def address(server: Server) -> tuple[str, int]:
    return server.lines._listener.getsockname()


def test_on_one_machine_nobody_else_can_connect(server: Server) -> None:
    assert address(server)[0] == "127.0.0.1"


def test_a_hello_that_is_not_read_yet_is_no_stranger(server: Server) -> None:
    """All have connected before launcher 0 looks, the launcher first."""
    with socket.create_connection(address(server)) as launcher:
        launcher.sendall(messages.to_line(messages.hello(member(1))))
        strangers = [socket.create_connection(address(server)) for _ in range(2 * MAX_UNIDENTIFIED)]
        server.step()
        server.fail(1, 0.0, "a bug")
        assert server.state.over is None, "it was taken for missing"
        server.step()
        assert received(launcher)["attempt"] == 1
        for stranger in strangers:
            stranger.close()


def test_a_stranger_that_says_a_byte_at_a_time_is_dropped_as_a_silent_one_is(server: Server) -> None:
    with socket.create_connection(address(server)) as stranger:
        for _ in range(3):
            stranger.sendall(b"x")
            server.step()
        (line,) = server.lines._lines.values()
        assert line.received == b"xxx"
        line.since -= IDENTIFY_SECONDS + 1  # so much later
        stranger.sendall(b"x")
        server.step()
        assert (server.lines._lines, server.state.over) == ({}, None)


def test_strangers_are_logged_once_for_each_reason(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A probe that says nothing must not hide what says something."""
    for _ in range(3):
        for said in (b"", b"GET / HTTP/1.1\r\n", b"x" * (MAX_LINE_BYTES + 1)):
            with socket.create_connection(address(server)) as stranger:
                stranger.sendall(said)
                wait_for("the stranger", lambda: has_stranger(server))
                for line in list(server.lines._lines.values()):
                    line.since -= IDENTIFY_SECONDS * (not said)
                wait_for("its end", lambda: not has_stranger(server))
    reasons = [record.args for record in caplog.records if "dropped a connection" in record.message]
    assert reasons == [("silent",), ("no message of a launcher of this job",), ("an endless line",)]


@pytest.mark.parametrize("at", [10**400, float("nan"), float("inf"), -1, True, "now"])
def test_an_end_at_no_time_is_no_message(at: Any) -> None:
    assert messages.parse_end(1, {"code": 1, "at": at, "line": "a bug"}) is None


@pytest.mark.parametrize("line", ["a\0bug", "a\ud800bug", "a\nbug"], ids=["NUL", "half a character", "two lines"])
def test_any_cause_can_be_told_to_the_next_program(server: Server, line: str) -> None:
    last = {"cause": "crash", "process": 1, "code": 1, "at": 100.0, "line": line}
    server.state.update({"attempt": 1, "running": True, "account": {"counts": {"crash": 1}, "last": last}})
    subprocess.run(["true"], env={"TPUJOB_IN_PLACE_CAUSE": server.state.cause}, check=True)
    assert server.state.cause == "process 1 ended with exit code 1: a bug"


def test_a_cause_of_any_length_is_heard(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[messages.Message] = []
    monkeypatch.setattr(server, "report", said.append)
    server.fail(1, 100.0, "x" * 10 * MAX_LINE_BYTES)
    assert len(messages.to_line(said[0])) < MAX_LINE_BYTES


@pytest.fixture
def replacing() -> Iterator[Server]:
    """Where Kubernetes replaces a lost pod."""
    made = Server(member(0, TPUJOB_POD_FAILURES="0"), port=0)
    yield made
    made.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["its connection broke", "silent"])
def test_a_launcher_that_comes_back_once_it_was_named_as_lost_starts_again_with_all(
    replacing: Server, is_closed: bool
) -> None:
    with socket.create_connection(address(replacing)) as launcher:
        launcher.sendall(hello())
        wait_for("the launcher", lambda: has_member(replacing))
        if is_closed:
            launcher.close()
            wait_for("its end", lambda: not has_member(replacing))
            replacing.round._broken_at[1] -= RECONNECT_SECONDS
        else:
            replacing.round._received_at[1] -= HEARTBEAT_SECONDS
        replacing.step()
        assert replacing.state.has_to_end
    with socket.create_connection(address(replacing)) as launcher:
        launcher.sendall(hello())
        wait_for("the launcher", lambda: has_member(replacing))
        assert replacing.state.announced == 1, "all have ended, and wait for an attempt that nobody announces"


def test_a_silent_launcher_that_ends_the_others_is_waited_for_as_a_new_pod(replacing: Server) -> None:
    """It was here, and not ready, so that all pods were made anew."""
    with socket.create_connection(address(replacing)) as launcher:
        launcher.sendall(hello())
        wait_for("the launcher", lambda: has_member(replacing))
        replacing.round.limit_seconds = UNCONNECTED_SECONDS
        replacing.round._received_at[1] -= HEARTBEAT_SECONDS
        replacing.fail(1, time.time(), "Connection closed by peer")
        replacing.step()
        assert not replacing.lines.members
        assert replacing.state.first is not None
        assert replacing.state.first.process == 1


@pytest.mark.parametrize("code", [0, 75])
def test_who_leaves_in_order_is_not_missed(code: int) -> None:
    """Others may save for longer, or finish later."""
    server = Server(member(0, TPUJOB_IN_PLACE="0"), port=0)
    client = connected(server)
    announce_end(client, ExitResult(code, stopped_at=1.0), "")
    client.close()
    wait_for("its end", lambda: not has_member(server))
    assert not misses(server, time.monotonic() + RECONNECT_SECONDS)
    server.close()


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (90, 90.0),
        (0.001, LEAST_HEARTBEAT_SECONDS),
        *((each, HEARTBEAT_SECONDS) for each in (1e308, 10**400, float("inf"), float("nan"), -5, 0, True, "5", None)),
    ],
)
def test_a_heartbeat_that_nobody_can_keep_is_not_taken(server: Server, said: Any, heard: float) -> None:
    server.state.met = {"lead": "a"}
    server._handle_of_program("hello", {"heartbeat_seconds": said})
    assert server.heartbeat_seconds == heard
    server.step()
    assert 0 <= (server.seconds() or 0.0) <= heard


@pytest.mark.parametrize(("code", "is_ended"), [(69, True), (75, False)])
def test_a_program_that_is_not_started_is_no_end_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, is_ended: bool
) -> None:
    server = Server(member(0), port=0)
    monkeypatch.setattr(main, "meet", lambda *arguments: server)
    with pytest.raises(Refused), main._meet({}, server.process, tmp_path):
        raise Refused(code, "the TPU is in use: process 7")
    assert (server.state.first is not None) == is_ended
    assert is_ended or server.state.over == "process 0 was asked to stop"


@pytest.mark.parametrize(
    ("environ", "limit"),
    [({"TPUJOB_CONFIG": "{}"}, HEARTBEAT_SECONDS), ({}, UNCONNECTED_SECONDS)],
    ids=["a trainer", "a program of one's own"],
)
def test_before_it_has_spoken_a_trainer_waits_no_longer_for_a_silent_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], limit: float
) -> None:
    server = Server(member(0, TPUJOB_IN_PLACE="0"), port=0)
    monkeypatch.setattr(main, "meet", lambda *arguments: server)
    with main._meet(environ, server.process, tmp_path) as peers:
        assert peers is server
        assert peers.limit_seconds == limit


def test_launchers_hear_each_other_while_they_wait_for_the_tpu(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    holders = [["process 7"], []]
    monkeypatch.setattr(tpu, "find_holders", lambda files: holders.pop(0))
    monkeypatch.setattr(tpu, "wants_whole_tpu", lambda environ: True)
    with socket.create_connection(address(server)) as launcher, SignalQueue() as signals:
        launcher.sendall(messages.to_line(messages.hello(member(1))))
        server.lines.poll(1)
        tpu.wait_for_tpu({}, server.process, TpuFiles(), signals, server.step)
        assert 1 in server.lines.members


def test_a_launcher_that_comes_again_hears_that_there_is_no_further_attempt(server: Server) -> None:
    server.fail(78, 0.0, "a bug")
    with socket.create_connection(address(server)) as launcher:
        launcher.sendall(messages.to_line(messages.hello(member(1), host="b")))
        wait_for("the launcher", lambda: has_member(server))
        assert received(launcher)["over"] == "exit code 78 ends the job"


@pytest.mark.parametrize(
    ("in_place", "limit"),
    [("0", UNCONNECTED_SECONDS), ("3", HEARTBEAT_SECONDS)],
    ids=["a job that would end", "one that starts again in its containers"],
)
@pytest.mark.parametrize(
    ("error", "is_lost"),
    [(errno.ECONNRESET, True), (errno.ETIMEDOUT, False)],
    ids=["its process is gone", "nothing comes through the network"],
)
def test_a_network_that_is_cut_has_the_time_to_be_back_that_a_program_would_wait(
    error: int, is_lost: bool, in_place: str, limit: float
) -> None:
    """The kernel gives up such a connection before. JAX goes on after a cut of 100 s."""
    server = Server(member(0, TPUJOB_IN_PLACE=in_place), port=0)
    client = connected(server)
    client._received_at = time.monotonic()
    server.step()
    line, now = server.lines.members[1], time.monotonic()
    line.is_silent = is_unreachable(OSError(error, ""))
    server.lines.drop(line)
    client._lose_connection(is_silent=line.is_silent)
    client._notice_loss(now + RECONNECT_SECONDS + 1)
    assert client.state.has_to_end == misses(server, now + RECONNECT_SECONDS + 1) == is_lost
    client._notice_loss(now + limit - 1)
    assert client.state.has_to_end == is_lost
    assert misses(server, now + limit - 1) == is_lost
    client._notice_loss(now + limit + 1)
    assert client.state.has_to_end
    assert misses(server, now + limit + 1)
    client.close()
    server.close()


def test_launcher_0_of_a_long_heartbeat_is_not_named_between_two_beats(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = connected(server)
    client.state.met = {"lead": "a"}
    client._handle_of_program("hello", {"heartbeat_seconds": 300})
    client._received_at = time.monotonic()
    client._notice_loss(client._received_at + 119)
    assert "no heartbeat" not in caplog.text
    client._notice_loss(client._received_at + 121)
    assert "process 0 sends no heartbeat" in caplog.text
    client.close()


def test_signs_of_life_come_at_once_when_a_program_starts_again(server: Server) -> None:
    """It has not spoken, so 30 s count again, and the last ones came a minute apart."""
    client = connected(server)
    client.state.met = {"lead": "a"}
    client._handle_of_program("hello", {"heartbeat_seconds": 300})
    client.report_if_connected(("heartbeat", {}))
    assert (client.seconds() or 0.0) > HEARTBEAT_SECONDS
    client.begin(1)
    assert client.seconds() == 0
    client.close()


def test_a_launcher_0_that_refuses_is_asked_once_a_second(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connected(server)
    slept: list[float] = []
    monkeypatch.setattr("tpujob_launcher.peers.client.time", SimpleNamespace(**{**vars(time), "sleep": slept.append}))
    server.lines.drop(server.lines.members[1])
    wait_for("it to come again", lambda: have_stepped(client) and has_member(server))
    assert slept == [RETRY_SECONDS]
    client.close()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_launcher_that_took_launcher_0_for_lost_does_not_wait_for_its_word(is_replaced: bool) -> None:
    """That is still there, and has noticed nothing: all start again, or this container ends."""
    more = {"TPUJOB_POD_FAILURES": "0"} if is_replaced else {}
    server = Server(member(0, **more), port=0)
    client = connected(server, **more)
    before = client.welcomes
    client._lose_connection()
    client.start()
    client._notice_loss(time.monotonic() + RECONNECT_SECONDS)
    assert client.state.has_to_end
    if is_replaced:
        wait_for("it to come again", lambda: have_stepped(client) and have_stepped(server) and client.welcomes > before)
        assert have_stepped(server, client, server)
        assert server.state.announced == 1
    else:
        assert client.state.over == "launcher 0 is lost"
    client.close()
    server.close()


def connected(server: Server, **more: str) -> Client:
    """The other launcher of its job."""
    client = Client(member(1, **{"TPUJOB_IN_PLACE": str(server.in_place), **more}), *address(server)[:2])
    client.start()
    wait_for("the launcher", lambda: have_stepped(client, server) and client._sock is not None and has_member(server))
    return client


def misses(server: Server, now: float) -> bool:
    """Whether a process counts as lost at that time."""
    server.round.tick(now, 0.0)
    return "first" in server.round.state


def received(launcher: socket.socket) -> dict[str, Any]:
    """The last state of the round in what has arrived."""
    launcher.settimeout(10)
    found = [json.loads(line) for line in launcher.recv(MAX_LINE_BYTES).splitlines()]
    state: dict[str, Any] = [each["round"] for each in found if "round" in each][-1]
    return state


def hello(at: int | None = 0, host: str = "b", **changes: Any) -> bytes:
    """The line of the other launcher, whose lost pod would be replaced."""
    kind, values = messages.hello(member(1), messages.Standpoint(at, {}), host)
    return messages.to_line((kind, {**values, **changes}))


def have_stepped(*launchers: Peers) -> bool:
    for each in launchers:
        each.step()
    return True


def has_member(server: Server) -> bool:
    server.step()
    return 1 in server.lines.members


def has_stranger(server: Server) -> bool:
    """After its next turn."""
    server.step()
    return bool(server.lines._lines)
