"""Real launchers of which some are killed, as with a lost pod, and started anew: the others wait for them."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launched import KILLED, Launched
from tests.launcher.peers.test_in_place import HOSTS, Start, account_of, one, port, start
from tools.localcluster.waiting import wait_for
from tpujob_contract.exit_codes import ExitCode

__all__ = ["one", "port", "start"]

FIRST: dict[str, Any] = {"TPUJOB_POD_FAILURES": "0", "TPUJOB_POD_DISRUPTIONS": "", "TPUJOB_POD": "llama-w-0-0-first"}
SECOND: dict[str, Any] = {**FIRST, "TPUJOB_POD_DISRUPTIONS": "1", "TPUJOB_POD": "llama-w-0-0-second"}
RUNS = "signal.pause()"
SAVES_WITH_ANOTHER = """signal.signal(signal.SIGTERM, lambda *_: None)
    (here / ("hears-" + os.environ["TPUJOB_HOST"])).touch()
    while not (here / 'save').exists(): time.sleep(0.01)
    sys.exit(0)"""
One = Callable[..., Launched]


def lose(launched: Launched) -> None:
    """As a node that is gone."""
    launched.send(signal.SIGKILL)
    assert launched.wait() == KILLED


@pytest.mark.parametrize("host", range(HOSTS))
def test_all_go_on_with_the_launcher_that_takes_the_place_of_a_lost_one(
    start: Start, one: One, tmp_path: Path, host: int
) -> None:
    launched = start(RUNS, **FIRST)
    lose(launched[host])
    launched[host] = one(host, RUNS, **SECOND)
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr
    for each in range(HOSTS):
        assert (tmp_path / f"{each}-1").read_text() == f"process {host} lost its pod: its container is gone"
        told = account_of("\n".join(launched[each].message))
        assert (told["counts"], told["lead"]) == ({"disruption": 1}, (SECOND if host == 0 else FIRST)["TPUJOB_POD"])
    assert (tmp_path / f"{host}-0.pid").read_text() != (tmp_path / f"{host}-1.pid").read_text()


def test_what_was_spent_outlives_launcher_0(start: Start, one: One) -> None:
    launched = start("if attempt != 1: raise RuntimeError('a bug')", fails=9, limit=2, **FIRST)
    wait_for("the second attempt", lambda: "attempt 1 in the same containers" in launched[2].stderr)
    lose(launched[0])
    launched[0] = one(0, RUNS, fails=9, limit=2, **SECOND)
    assert launched[1].wait() == 1
    assert "it started again 2 times here, the limit" in launched[1].stderr
    told = account_of("\n".join(launched[1].message))
    assert (told["counts"], told["lead"]) == ({"crash": 1, "disruption": 1}, "llama-w-0-0-first")
    assert [launched[host].wait() for host in (0, 2)] == [1, 1]


def test_a_pod_that_is_asked_to_stop_alone_is_replaced(start: Start, one: One, tmp_path: Path) -> None:
    launched = start(RUNS, **FIRST)
    launched[1].send(signal.SIGTERM)
    assert launched[1].wait() == 143
    launched[1] = one(1, RUNS, **SECOND)
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr
    assert (tmp_path / "0-1").read_text() == "process 1 lost its pod: it was asked to stop"


def test_programs_that_save_and_return_0_as_one_is_asked_to_stop_go_on(start: Start, one: One, tmp_path: Path) -> None:
    """As JAX programs do that ask for its preemption sync point: all of them, at the same step."""
    launched = start(SAVES_WITH_ANOTHER, of={host: {"FAILING": str(host)} for host in range(HOSTS)}, **FIRST)
    wait_for("a program that hears the signal", (tmp_path / "hears-1").exists)
    launched[1].send(signal.SIGTERM)
    wait_for("launcher 0 to tell", lambda: "asked to stop: SIGTERM at process 1" in launched[0].stderr)
    (tmp_path / "save").touch()
    assert launched[1].wait() == ExitCode.STOPPED
    launched[1] = one(1, RUNS, **SECOND)
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr
    assert (tmp_path / "0-1").read_text() == "process 1 lost its pod: it was asked to stop"


def test_without_a_new_pod_the_containers_end_after_a_time_by_a_code_that_ends_the_attempt(start: Start) -> None:
    launched = start("os.kill(os.getpid(), signal.SIGKILL)", TPUJOB_STARTUP_SECONDS="1", **FIRST)
    lose(launched[2])
    assert [each.wait() for each in launched[:2]] == [1, ExitCode.NO_ATTEMPT_LEFT]
    assert "the pod of process 2 was not replaced within 1 s" in launched[0].stderr
    assert any("the program's own exit code: " in line for line in launched[1].message)


def test_a_new_pod_that_comes_too_late_says_so(start: Start, one: One) -> None:
    launched = start("sys.exit(0)", **FIRST)
    assert launched[1].wait() == 0
    newcomer = one(1, RUNS, **SECOND)
    assert newcomer.wait() == ExitCode.NO_ATTEMPT_LEFT
    assert "process 1 has finished" in newcomer.stderr
    for each in (launched[0], launched[2]):
        each.send(signal.SIGTERM)
        assert each.wait() == 143


def test_where_all_pods_are_new_they_start_together(one: One, tmp_path: Path) -> None:
    launched = [one(host, RUNS, **SECOND) for host in range(HOSTS)]
    (tmp_path / "go").write_text("")
    assert [each.wait() for each in launched] == [0] * HOSTS, launched[0].stderr
    assert not (tmp_path / "1-0").exists()
    assert (tmp_path / "1-1").read_text() == "process 0 lost its pod: all pods are new"
    for each in launched:
        assert account_of("\n".join(each.message))["lead"] == "llama-w-0-0-second"
