"""Real launchers with real programs, which start again in the same launchers, or do not."""

import json
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launched import JOB, LAUNCHER, Launched
from tests.launcher.conftest import Launch, Machine, make_devices
from tools.localcluster.waiting import wait_for
from tpujob_contract.reports import in_place

HOSTS = 3
PROGRAM = """
import os, pathlib, signal, sys, time
attempt = int(os.environ.get("TPUJOB_IN_PLACE_ATTEMPT", "0"))
here = pathlib.Path(os.environ["FOLDER"])
(here / f"{{os.environ['TPUJOB_HOST']}}-{{attempt}}.pid").write_text(str(os.getpid()))
(here / f"{{os.environ['TPUJOB_HOST']}}-{{attempt}}").write_text(os.environ.get("TPUJOB_IN_PLACE_CAUSE", ""))
FAILS = {fails}
if attempt < FAILS and "{deaf}":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while not (here / "go").exists():
    time.sleep(0.01)
if os.environ["TPUJOB_HOST"] == os.environ.get("FAILING", "1") and attempt < FAILS:
    {failure}
while attempt < FAILS:
    time.sleep(0.01)
"""
HELD = "while not (here / 'held').exists(): time.sleep(0.01)\n    raise RuntimeError('a bug')"
"""Fails once the test holds the TPU."""
Start = Callable[..., list[Launched]]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def one(launch: Launch, tmp_path: Path, port: int) -> Callable[..., Launched]:
    """Starts the launcher of one host."""

    def started(
        host: int,
        failure: str,
        *,
        fails: int = 1,
        limit: int = 2,
        deaf: str = "",
        launcher: Sequence[str] = LAUNCHER,
        **more: str,
    ) -> Launched:
        program = PROGRAM.format(fails=fails, failure=failure, deaf=deaf)
        place = {"TPUJOB_SLICE": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": str(HOSTS)}
        peers = {"TPUJOB_IN_PLACE": str(limit), "TPUJOB_LAUNCHER_PORT": str(port), "FOLDER": str(tmp_path)}
        at = {"TPUJOB_COORDINATOR": f"127.0.0.1:{port + 1}", "TPUJOB_HOST": str(host)}
        environ = {**JOB, **place, **peers, **at, **more}
        return launch(sys.executable, "-c", program, environ=environ, launcher=launcher)

    return started


@pytest.fixture
def start(one: Callable[..., Launched], tmp_path: Path, port: int) -> Start:
    """Starts a launcher for each host, and lets the programs go on once all have met."""

    def started(
        failure: str, *, hosts: int = HOSTS, of: Mapping[int, Mapping[str, Any]] = {}, **options: Any
    ) -> list[Launched]:
        found = [one(host, failure, **options, **of.get(host, {})) for host in range(hosts)]
        for host in range(hosts):
            wait_for(f"host {host}", (tmp_path / f"{host}-0").exists)
        # Connected and greeted: launcher 0 does not miss one that is killed in between.
        wait_for("the launchers to meet", lambda: all("connected to launcher 0" in each.stderr for each in found[1:]))
        (tmp_path / "go").write_text("")
        return found

    return started


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ("raise RuntimeError('a bug')", "process 1 ended with exit code 1: RuntimeError: a bug"),
        ("sys.exit(3)", "process 1 ended with exit code 3: SystemExit: 3"),
        ("sys.exit(75)", "process 1 ended with exit code 75"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "process 1 ended with exit code 137"),
        (
            (
                "import atexit; signal.signal(signal.SIGTERM, signal.SIG_IGN); atexit.register(signal.pause); "
                "raise RuntimeError('in a barrier')"
            ),
            "process 1 ended with exit code 1: RuntimeError: in a barrier",
        ),
    ],
    ids=["exception", "sys.exit", "saved, start me again", "killed", "its exit handler waits for the others"],
)
def test_all_start_again_in_the_same_launchers(start: Start, tmp_path: Path, failure: str, cause: str) -> None:
    launched = start(failure)
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[1].stderr
    for host in range(HOSTS):
        assert (tmp_path / f"{host}-1").read_text().startswith(cause)
        assert f"attempt 1 in the same containers: {cause}" in launched[host].stderr


def test_launcher_0_tells_how_often_while_the_programs_run(start: Start, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        page = free.getsockname()[1]
    failure = "raise RuntimeError('a bug')\nwhile attempt == FAILS and not (here / 'seen').exists(): time.sleep(0.01)"
    launched = start(failure, TPUJOB_IN_PLACE_PORT=str(page))

    def told() -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/in-place", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:  # between attempts
            return None
        return found if found["in_place_restarts"] else None

    found = wait_for("the restart", told)
    (tmp_path / "seen").write_text("")
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr
    assert found["in_place_cause"] == "process 1 ended with exit code 1: RuntimeError: a bug"
    assert found["in_place"]["counts"] == {"crash": 1}
    assert "Serving /in-place on 127.0.0.1" in launched[0].stderr
    assert "Serving" not in launched[1].stderr


ALONE = {"TPUJOB_HOSTS_PER_SLICE": "1", "FAILING": "0"}


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ("raise RuntimeError('a bug')", "process 0 ended with exit code 1: RuntimeError: a bug"),
        ("sys.exit(75)", "process 0 ended with exit code 75"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "process 0 ended with exit code 137"),
    ],
    ids=["exception", "saved, start me again", "killed"],
)
def test_the_only_process_starts_again_in_its_launcher(start: Start, tmp_path: Path, failure: str, cause: str) -> None:
    (launched,) = start(failure, hosts=1, **ALONE)
    assert launched.wait() == 0, launched.stderr
    assert (tmp_path / "0-1").read_text().startswith(cause)
    assert f"attempt 1 in the same containers: {cause}" in launched.stderr
    told = account_of(launched.message[-1])["last"]
    assert told["process"] == 0


@pytest.mark.parametrize(("failure", "code"), [("sys.exit(78)", 78), ("sys.exit(3)", 3)], ids=["fatal", "too often"])
def test_the_only_process_ends_with_its_own_code(start: Start, failure: str, code: int) -> None:
    (launched,) = start(failure, hosts=1, fails=9, limit=1, **ALONE)
    assert launched.wait() == code, launched.stderr
    assert ("the limit" in launched.stderr) is (code == 3)


JUMP_SECONDS = 9 * 3600
JUMPING_CLOCK = """
import time
right = time.time
def jumped():
    try:
        return right() + float(open({file!r}).read())
    except FileNotFoundError:
        return right()
time.time = jumped
"""


@pytest.mark.parametrize("host", [0, 1], ids=["of launcher 0", "of the host that fails"])
def test_a_clock_that_jumps_forward_and_back_stops_nothing(start: Start, tmp_path: Path, host: int) -> None:
    """By hours, after the launchers have met: forward before the first failure, and back before the second."""
    clock = tmp_path / "clock"
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK.format(file=str(clock)))
    jump = f"(here / 'new').write_text(str({JUMP_SECONDS} * (1 - 2 * attempt))); (here / 'new').replace({str(clock)!r})"
    launched = start(f"{jump}\n    raise RuntimeError('a bug')", fails=2, of={host: {"PYTHONPATH": str(tmp_path)}})
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[host].stderr
    for each in launched:
        assert not any(word in each.stderr for word in ("no heartbeat", "lost", "was not ready")), each.stderr
        told = account_of("\n".join(each.message))
        assert told["counts"] == {"crash": 2}
        last = told["last"]
        assert (last["process"], last["code"], last["line"]) == (1, 1, "RuntimeError: a bug")


def test_an_attempt_waits_for_a_tpu_that_is_still_held(start: Start, tmp_path: Path, machine: Machine) -> None:
    make_devices(machine, "accel0")
    launched = start(HELD, of={1: {"launcher": machine.launcher}})
    pid = machine.hold(machine.files.devices / "accel0")
    (tmp_path / "held").write_text("")
    launched[1].wait_until_said(f"the TPU is in use: process {pid} (")
    assert "waiting up to 30 s" in launched[1].stderr
    assert not (tmp_path / "1-1").exists()
    machine.release()
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[1].stderr
    assert (tmp_path / "1-1").exists()
    assert account_of("\n".join(launched[1].message))["counts"] == {"crash": 1}


def test_a_tpu_that_stays_held_between_attempts_ends_its_container_with_69(
    start: Start, tmp_path: Path, machine: Machine
) -> None:
    make_devices(machine, "accel0")
    launched = start(HELD, of={1: {"launcher": machine.launcher, "TPUJOB_GRACE_SECONDS": "1"}}, fails=9)
    pid = machine.hold(machine.files.devices / "accel0")
    (tmp_path / "held").write_text("")
    assert launched[1].wait() == 69
    first, reason, *_ = launched[1].message
    assert first == "exit code 69, another process holds the TPU"
    assert reason.startswith(f"the TPU is in use: process {pid} (")
    assert reason.endswith("accel0, still after 1 s; end it, or use another host")
    assert not (tmp_path / "1-1").exists()
    for each in (launched[0], launched[2]):
        assert each.wait() == 1, each.stderr
        assert f"ended with process 1 on host {socket.gethostname()}, which was first: {reason}" in each.message


def test_programs_that_hear_no_signal_are_killed(start: Start) -> None:
    """As JAX's preemption service makes them, which takes SIGTERM for a notice."""
    launched = start("raise RuntimeError('a bug')", deaf="all")
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr


def test_words_of_an_attempt_that_failed_are_not_those_of_the_one_that_finished(start: Start) -> None:
    failure = "pathlib.Path(os.environ['TPUJOB_TERMINATION_LOG']).write_text('lost a disk'); os._exit(1)"
    launched = start(failure)
    assert [each.wait() for each in launched] == [0] * HOSTS
    first, last = launched[1].message
    assert first == "exit code 0, finished"
    told = account_of(last)["last"]
    assert (told["process"], told["code"], told["words"]) == (1, 1, "lost a disk")
    assert "process 1 ended with exit code 1: lost a disk" in launched[0].stderr


def account_of(line: str) -> Any:
    _, found = in_place.split(line)
    return found


def test_after_the_limit_the_containers_end_with_the_counts_and_the_last_cause(start: Start) -> None:
    launched = start("print('in attempt', attempt, flush=True)\n    raise RuntimeError(f'{attempt}')", fails=9, limit=2)
    assert launched[1].wait() == 1
    told = account_of("\n".join(launched[1].message))
    assert told["counts"] == {"crash": 2}
    assert told["last"]["line"] == told["last"]["words"].splitlines()[-1] == "RuntimeError: 1"
    assert "RuntimeError: 2" in launched[1].message[-2]
    assert "it started again 2 times here, the limit" in launched[1].stderr
    for each in (launched[0], launched[2]):
        assert each.wait() == 1
        told = account_of("\n".join(each.message))
        assert told["counts"] == {"crash": 2}
        assert "words" not in told["last"]


def test_a_host_that_is_asked_to_stop_while_it_ends_leftovers_does_not_start_again(
    start: Start, tmp_path: Path
) -> None:
    """They are killed after 5 s."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN), signal.pause()"
    launched = start(f"os.fork() or ({deaf}); os._exit(3)")
    launched[0].wait_until_said("the program has to end: ended with process 1")
    launched[1].send(signal.SIGTERM)
    assert launched[1].wait() == 3
    assert "told to stop by SIGTERM between two attempts" in launched[1].stderr
    assert not (tmp_path / "1-1").exists()
    for each in (launched[0], launched[2]):
        each.wait()
        assert "process 1 was asked to stop" in each.stderr
