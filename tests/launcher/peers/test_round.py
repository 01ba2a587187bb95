"""When launcher 0 lets all programs start again: every case of it, with a clock that is passed."""

import pytest

from tests.launcher.peers.rounds import GONE, STARTUP_SECONDS, connected, end, fresh, is_ending, replacing, restart
from tpujob_launcher.peers.attempt import Phase
from tpujob_launcher.peers.timing import (
    FINISHED_SECONDS,
    HEARTBEAT_SECONDS,
    LEAVE_SECONDS,
    READY_SECONDS,
    STEADY_SECONDS,
)


def test_the_first_failure_ends_the_attempt_and_all_start_when_all_are_ready() -> None:
    made = connected()
    made.ended(end(2), 0, 10.0)
    assert is_ending(made)
    made.ended(end(0, line="lost process 2 on host c: its connection broke"), 0, 10.1)
    for process in (0, 2):
        made.ready(process, 1, 11.0)
    made.tick(12.0, 0.0)
    assert is_ending(made)
    made.ready(1, 1, 12.0)
    assert made.seconds(12.0) == 0
    made.tick(12.0, 70.5)
    last = {"process": 2, "code": 1, "at": 100.0, "line": "a bug", "cause": "crash", "again": 70.5}
    assert made.state == {"attempt": 1, "running": True, "account": {"counts": {"crash": 1}, "last": last}}
    assert made.seconds(12.0) == HEARTBEAT_SECONDS, "nothing but heartbeats is due"


def test_a_process_that_finished_is_named_once_when_the_others_go_on() -> None:
    made = fresh()
    made.finished(2, 10.0)
    made.finished(1, 20.0)
    assert made.over == "process 2 has finished"
    assert (made.seconds(15.0), made.early_finish(15.0)) == (FINISHED_SECONDS - 5, None)
    assert [made.early_finish(10.0 + FINISHED_SECONDS) for _ in range(2)] == [2, None]


@pytest.mark.parametrize(
    ("limit", "times", "pauses"),
    [
        (9, [100.0 * number for number in range(9)], [0, 1, 2, 4, 8, 16, 32, 60, 60]),
        (9, [0.0, 1.0, STEADY_SECONDS, 2 * STEADY_SECONDS + 2, 2 * STEADY_SECONDS + 3], [0, 1, 2, 0, 1]),
    ],
    ids=["each fails soon", "one lasted"],
)
def test_pauses_grow_while_attempts_fail_soon(limit: int, times: list[float], pauses: list[float]) -> None:
    made = connected(limit=limit)
    found = []
    for now in times:
        made.ended(end(1), made.attempt, now)
        for process in range(3):
            made.ready(process, made.attempt, now)
        assert made._start_at is not None
        found.append(made._start_at - now)
        restart(made, now)
    assert found == pauses


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        *((code, f"exit code {code} ends the job") for code in (76, 77, 78)),
        (0, "process 1 has finished"),
        *((code, None) for code in (1, 69, 75, 79, 80, 134, 137, 139, 143)),
    ],
)
@pytest.mark.parametrize("is_second", [False, True], ids=["first", "after a crash"])
def test_a_code_that_another_attempt_does_not_mend_ends_the_job(code: int, reason: str | None, is_second: bool) -> None:
    made = connected()
    if is_second:
        made.ended(end(0), 0, 0.0)
        reason = reason if code else None
    made.ended(end(1, code), 0, 0.0)
    assert made.over == reason
    made.ended(end(2), 0, 0.0)
    assert made.over == reason


def test_the_limit_is_of_these_containers() -> None:
    made = connected(limit=1)
    made.ended(end(1), 0, 0.0)
    restart(made, 1.0)
    made.ended(end(1), 1, 2.0)
    assert made.over == "it started again 1 times here, the limit"


@pytest.mark.parametrize("is_lost", [False, True], ids=["not there yet", "lost while all run"])
def test_without_all_launchers_no_attempt_follows(is_lost: bool) -> None:
    made = connected() if is_lost else fresh()
    if is_lost:
        made.disconnected(1, 0.0)
    else:
        made.connected(2, 0.0)
    made.ended(end(2, 137), 0, 0.0)
    assert made.over == "the launcher of process 1 is not connected"


def test_a_launcher_that_is_lost_while_the_others_wait_ends_the_wait() -> None:
    made = connected()
    made.ended(end(2), 0, 0.0)
    made.ready(0, 1, 1.0)
    made.disconnected(1, 1.0)
    assert made.over == "the launcher of process 1 is gone"


def test_a_program_that_cannot_be_killed_ends_the_wait() -> None:
    made = connected()
    made.ended(end(2), 0, 0.0)
    made.ready(0, 1, 1.0)
    made.ready(2, 1, 1.0)
    made.tick(READY_SECONDS - 0.1, 0.0)
    assert made.over is None
    made.tick(READY_SECONDS, 0.0)
    assert made.over == "process 1 was not ready within 60 s"


@pytest.mark.parametrize("is_second", [False, True])
def test_a_container_that_is_asked_to_stop_ends_the_restarts(is_second: bool) -> None:
    made = connected()
    if is_second:
        made.ended(end(2), 0, 0.0)
    made.receive(1, ("bye", {"why": "stopping", "at": 1.0}), 0.0, 0.0)
    assert made.over == "process 1 was asked to stop"


def test_reports_about_another_attempt_are_ignored() -> None:
    made = connected()
    made.ended(end(1), 0, 0.0)
    restart(made, 1.0)
    made.ended(end(1), 0, 2.0)
    assert made.phase is Phase.RUNNING
    made.ended(end(1), 1, 2.0)
    made.ready(1, 1, 2.0)
    made.ready(1, 7, 2.0)
    assert made._ready == set(), "none is ready for attempt 2"


# Lost pods are replaced.


def test_a_lost_pod_ends_the_attempt_and_its_replacement_joins_the_next() -> None:
    made = replacing()
    made.limit_seconds = READY_SECONDS * 2
    made.receive(1, ("bye", {}), 0.0, 0.0)
    made.disconnected(1, 0.0, at=50.0)
    assert made.seconds(0.0) == LEAVE_SECONDS
    made.tick(LEAVE_SECONDS, 0.0)
    assert is_ending(made)
    made.ready(0, 1, 6.0)
    made.ready(2, 1, 6.0)
    made.tick(READY_SECONDS + 10, 0.0)
    assert is_ending(made), "the one that is missing is not here"
    made.connected(1, 80.0, at=None)
    assert restart(made, 80.0) == GONE
    last = {"process": 1, "code": 137, "at": 50.0, "line": "its container is gone", "lost": True, "again": 0.0}
    assert made.account == {"counts": {"disruption": 1}, "last": {**last, "cause": "disruption"}}


@pytest.mark.parametrize("was_here", [True, False])
def test_a_replacement_ends_the_attempt_if_the_pod_before_it_was_here(was_here: bool) -> None:
    made = replacing() if was_here else fresh(replaces_pods=True)
    made.connected(1, 3.0, at=None, lost_at=60.0)
    assert is_ending(made) == was_here


def test_a_connection_that_is_restored_costs_nothing() -> None:
    made = replacing()
    made.disconnected(1, 0.0)
    made.connected(1, 1.0)
    made.limit_seconds = 2000.0
    made.tick(1000.0, 0.0)
    assert made.phase is Phase.RUNNING


@pytest.mark.parametrize("reports_first", [False, True], ids=["its launcher reports first", "its program does"])
def test_pods_that_save_before_they_stop_are_not_ended_by_the_first_that_has(reports_first: bool) -> None:
    """A trainer that compiles reports why it ends before its launcher does."""
    made = replacing()
    if reports_first:
        made.ended(end(1, 75, "SIGTERM outside the training loop: nothing to save"), 0, 0.0)
    made.receive(1, ("bye", {"why": "stopping", "at": 40.0}), 0.0, 0.0)
    made.disconnected(1, 0.1, at=50.0)
    made.ended(end(2, 75, ""), 0, 1.0)
    assert made.phase is Phase.RUNNING
    made.ended(end(0, 75, ""), 0, 2.0)
    assert is_ending(made), "all have ended"
    made.connected(1, 20.0, at=None)
    assert restart(made, 20.0) == "process 1 lost its pod: it was asked to stop"


def test_a_pod_that_is_not_replaced_in_time_ends_the_wait() -> None:
    made = replacing()
    made.ended(end(0), 0, 0.0)
    made.disconnected(2, 1.0)
    made.ready(0, 1, 2.0)
    made.ready(1, 1, 2.0)
    made.tick(STARTUP_SECONDS - 1, 0.0)
    assert made.over is None
    made.tick(STARTUP_SECONDS, 0.0)
    assert made.over == "the pod of process 2 was not replaced within 100 s"


def test_a_lost_pod_takes_from_the_budget() -> None:
    made = replacing(limit=0)
    made.disconnected(1, 0.0)
    made.tick(LEAVE_SECONDS, 0.0)
    assert made.over == "it started again 0 times here, the limit"


def test_the_pod_of_launcher_0_that_stops_does_not_end_it_for_the_others() -> None:
    made = replacing()
    made.stopping(0, 0.0)
    assert (made.over, made._end_at) == (None, None)


@pytest.mark.parametrize(
    ("attempts", "following"),
    [([4], 5), ([4, 4], 5), ([4, 5], 6), ([5, 4], 6), ([None, 4], 5), ([None, None], 1)],
    ids=["another knows", "all agree", "the newer wins", "the older is behind", "one is new", "all are new"],
)
def test_a_new_launcher_0_learns_the_attempt_from_the_others(attempts: list[int | None], following: int) -> None:
    made = fresh(limit=9, replaces_pods=True, is_replacement=True)
    assert made.state == {"running": False}
    for number, at in enumerate(attempts, 1):
        made.connected(number, 1.0, at=at, lost_at=70.0)
    assert is_ending(made, following)
    if len(attempts) > 1:
        words = "all pods are new" if set(attempts) == {None} else "its container is gone"
        assert restart(made, 2.0) == f"process 0 lost its pod: {words}"
        assert (made.attempt, made.account["last"]["at"]) == (following, 70.0)


def test_each_restart_is_counted_in_the_account_of_these_pods() -> None:
    made = replacing(account={"counts": {"crash": 2}, "lead": "first"})
    made.ended(end(1), 0, 0.0)
    restart(made, 1.0)
    assert (made.account["counts"], made.account["lead"]) == ({"crash": 3}, "first")


def test_a_new_launcher_0_to_which_none_connects_gives_up() -> None:
    made = fresh(replaces_pods=True, is_replacement=True)
    for now, reason in ((0.0, None), (STARTUP_SECONDS - 1, None), (STARTUP_SECONDS, "process 1")):
        made.tick(now, 0.0)
        assert made.over == (reason and f"the pod of {reason} was not replaced within 100 s")
