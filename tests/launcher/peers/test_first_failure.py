"""Real launchers whose programs do not start again: the first failure is named everywhere, and ends all."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launched import JOB, Launched
from tests.launcher.conftest import Launch
from tools.localcluster.waiting import wait_for

HOSTS = 2
PROGRAM = """
import os, pathlib, signal, sys
here = pathlib.Path(os.environ["FOLDER"])
{before}
(here / os.environ["TPUJOB_HOST"]).write_text(str(os.getpid()))
(here / ("go-" + os.environ["TPUJOB_HOST"])).read_bytes()
if os.environ["TPUJOB_HOST"] == "1":
    {failure}
while True:
    {meanwhile}
"""
Start = Callable[..., list[Launched]]


@pytest.fixture
def start(launch: Launch, tmp_path: Path) -> Start:
    def started(
        failure: str = "pass", before: str = "", meanwhile: str = "signal.pause()", **more: str
    ) -> list[Launched]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        place = {"TPUJOB_SLICE": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": str(HOSTS)}
        peers = {"TPUJOB_LAUNCHER_PORT": str(port), "TPUJOB_COORDINATOR": "127.0.0.1:1", "FOLDER": str(tmp_path)}
        program = PROGRAM.format(failure=failure, before=before, meanwhile=meanwhile)
        for host in range(HOSTS):
            os.mkfifo(tmp_path / f"go-{host}")
        found = [
            launch(sys.executable, "-c", program, environ={**JOB, **place, **peers, "TPUJOB_HOST": str(host), **more})
            for host in range(HOSTS)
        ]
        for host in range(HOSTS):
            wait_for(f"host {host}", (tmp_path / f"{host}").exists)
        found[1].wait_until_said("connected to launcher 0")
        for host in range(HOSTS):
            (tmp_path / f"go-{host}").write_bytes(b"")
        return found

    return started


@pytest.mark.parametrize(
    ("failure", "codes", "cause"),
    [
        ("raise RuntimeError('a bug')", (1, 1), "RuntimeError: a bug"),
        ("sys.exit(3)", (1, 3), "SystemExit: 3"),
        ("sys.exit(78)", (78, 78), "SystemExit: 78"),
        ("os.kill(os.getpid(), signal.SIGKILL)", (1, 137), "exit code 137, killed by SIGKILL"),
    ],
)
def test_the_first_failure_is_named_by_all(start: Start, failure: str, codes: tuple[int, int], cause: str) -> None:
    launched = start(failure)
    assert tuple(each.wait() for each in launched) == codes, launched[0].stderr
    words = f"ended with process 1 on host {socket.gethostname()}, which was first: {cause}"
    assert launched[0].message[1] == words
    assert not any("which was first" in line for line in launched[1].message)


def test_a_program_that_fails_a_moment_later_has_its_own_exit_code(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    alive = "alive = open(here / 'alive', 'r' if os.environ['TPUJOB_HOST'] == '0' else 'w')"
    launched = start("sys.exit(1)", before=alive, meanwhile="alive.read(); sys.exit(77)")
    assert [each.wait() for each in launched] == [77, 1]


def test_a_program_that_hears_no_signal_is_killed(start: Start) -> None:
    launched = start("sys.exit(3)", before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert [each.wait() for each in launched] == [1, 3]


def test_a_program_that_returns_0_since_it_has_to_end_has_not_finished(start: Start) -> None:
    launched = start("sys.exit(3)", before="signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))")
    assert [each.wait() for each in launched] == [1, 3]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_launcher_that_is_gone_is_named(start: Start, victim: int) -> None:
    launched = start()
    launched[victim].send(signal.SIGKILL)
    other = launched[1 - victim]
    assert other.wait() == 1
    assert other.message[1].startswith(f"lost process {victim}")
    assert "its connection broke" in other.message[1]


def test_others_go_on_when_one_is_asked_to_stop_or_has_finished(start: Start, tmp_path: Path) -> None:
    launched = start("sys.exit(0)")
    assert launched[1].wait() == 0
    os.kill(int((tmp_path / "0").read_text()), 0)
    launched[0].send(signal.SIGTERM)
    assert launched[0].wait() == 143
    assert launched[0].message == ["exit code 143, killed by SIGTERM", "told to stop by SIGTERM"]


def test_a_program_that_asks_for_another_start_comes_before_the_error_that_a_peer_has_because_of_it(
    start: Start, tmp_path: Path
) -> None:
    """As in PyTorch, where a peer notices at once; the process itself ends a moment after its exit handlers."""
    for name in ("alive", "raised"):
        os.mkfifo(tmp_path / name)
    before = """
if os.environ.get("TPUJOB_IN_PLACE_ATTEMPT"):
    sys.exit(0)
import atexit
alive = open(here / "alive", "r" if os.environ["TPUJOB_HOST"] == "0" else "w")
"""
    failure = "atexit.register(lambda: (alive.close(), (here / 'raised').read_bytes())); sys.exit(75)"
    meanwhile = "alive.read(); (here / 'raised').write_bytes(b''); raise RuntimeError('Connection closed by peer')"
    launched = start(failure, before, meanwhile, TPUJOB_IN_PLACE="1")
    assert [each.wait() for each in launched] == [0, 0], launched[0].stderr
    for each in launched:
        assert "attempt 1 in the same containers: process 1 ended with exit code 75" in each.stderr
