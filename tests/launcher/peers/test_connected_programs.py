"""Real launchers whose programs speak, and stand still, or leave processes behind that hear no signal."""

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

HEARTBEAT_SECONDS = 2
"""Shorter than leftovers take to be killed."""
PROGRAM = """
import json, os, pathlib, select, signal, socket, subprocess, sys
here, host = pathlib.Path(os.environ["FOLDER"]), os.environ["TPUJOB_HOST"]
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["TPUJOB_PEERS_SOCKET"])
def say(kind, values):
    line.sendall(json.dumps({kind: values}).encode() + b"\\n")
say("hello", {"version": 1, "heartbeat_seconds": HEARTBEAT})
heard = b""
while b'"met"' not in heard:
    heard += line.recv(4096)
if host == "VICTIM":
    worker = [sys.executable, "-I", "-S", "-c", DEAF]
    subprocess.Popen(worker, start_new_session=True, stdout=subprocess.PIPE).stdout.readline()
    FAILURE
(here / host).touch()
while b'"end"' not in heard:
    say("state", {"step": 1})
    if select.select([line], [], [], 0.3)[0]:
        heard += line.recv(4096)
sys.exit(1)
"""
Start = Callable[[int, str], list[Launched]]


@pytest.fixture
def start(launch: Launch, tmp_path: Path) -> Start:
    def started(victim: int, failure: str) -> list[Launched]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        place = {"TPUJOB_SLICE": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "2", "FOLDER": str(tmp_path)}
        peers = {"TPUJOB_LAUNCHER_PORT": str(port), "TPUJOB_COORDINATOR": "127.0.0.1:1"}
        values = {"HEARTBEAT": str(HEARTBEAT_SECONDS), "VICTIM": str(victim), "FAILURE": failure}
        program = PROGRAM
        for name, value in values.items():
            program = program.replace(name, value)
        return [
            launch(sys.executable, "-c", program, environ={**JOB, **place, **peers, "TPUJOB_HOST": str(host)})
            for host in range(2)
        ]

    return started


@pytest.mark.parametrize("victim", [0, 1])
def test_a_program_whose_interpreter_stands_still_shows_where_and_is_killed(start: Start, victim: int) -> None:
    # One call into C that takes very long, and that no signal interrupts.
    frozen = "import faulthandler, re; faulthandler.register(signal.SIGURG); re.match('(a+)+$', 'a' * 60 + 'b')"
    launched = start(victim, frozen)
    assert [each.wait() for each in launched] == [1 if host != victim else 137 for host in range(2)]
    assert "the program no longer answers its launcher, or is frozen: killed" in launched[victim].message
    assert "in <module>" in launched[victim].stderr
    words = f"lost process {victim} on host {socket.gethostname()}: silent for"
    assert [line for line in launched[1 - victim].message if line.startswith(words)]


@pytest.mark.parametrize("victim", [0, 1])
def test_an_end_is_told_before_leftovers_are_gone(start: Start, victim: int) -> None:
    launched = start(victim, "os.kill(os.getpid(), signal.SIGKILL)")
    other = launched[1 - victim]
    assert other.wait() == 1
    words = f"ended with process {victim} on host {socket.gethostname()}, which was first: exit code 137"
    assert [line for line in other.message if line.startswith(words)], other.message
    assert launched[victim].wait() == 137


@pytest.mark.parametrize("victim", [0, 1])
def test_a_launcher_that_ends_leftovers_is_not_lost(start: Start, tmp_path: Path, victim: int) -> None:
    launched = start(victim, "sys.exit(0)")
    other = launched[1 - victim]
    wait_for("the other", (tmp_path / str(1 - victim)).exists)
    assert launched[victim].wait() == 0
    assert any("left behind and killed" in line for line in launched[victim].message)
    os.kill(other.pid, 0)
    other.send(signal.SIGTERM)
    assert other.wait() == 143
    assert other.message == ["exit code 143, killed by SIGTERM", "told to stop by SIGTERM"]
