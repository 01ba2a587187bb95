"""Whether all programs of a job start again in place: every case of it, as launcher 0 decides."""

import pytest

from tpujob_contract.reports.first_end import first_of
from tpujob_launcher.child.ending import FINISHED_SECONDS
from tpujob_launcher.peers.decisions import LEAVE_SECONDS, READY_SECONDS, STEADY_SECONDS, Decisions
from tpujob_launcher.peers.messages import GO, OVER, RESTART, End, Message, known_of


def decisions(*, processes: int = 3, limit: int = 2) -> Decisions:
    """With all launchers connected."""
    made = Decisions(processes, limit)
    for process in range(1, processes):
        made.arrived(process)
    return made


def end(process: int, code: int = 1, line: str = "a bug", at: float = 100.0) -> End:
    return End(process, code, at, line)


def kinds(said: list[Message]) -> list[str]:
    return [kind for kind, _ in said]


def restarted(made: Decisions, *ends: End) -> list[Message]:
    """A whole round, up to the start of the next attempt."""
    attempt = made.attempt
    for each in ends:
        made.ended(each, attempt, 0.0)
    for process in range(3):
        made.ready(process, attempt + 1, 1.0)
    return made.look(1000.0)


def test_the_first_failure_ends_the_attempt_and_all_start_when_all_are_ready() -> None:
    made = decisions()
    assert made.ended(end(2), 0, 10.0) == [(RESTART, {"attempt": 1})]
    assert made.ended(end(0, line="lost process 2 on host c: its connection broke"), 0, 10.1) == []
    for process in (0, 2):
        made.ready(process, 1, 11.0)
    assert made.look(12.0) == []
    made.ready(1, 1, 12.0)
    assert made.seconds(12.0) == 0
    cause = "process 2 ended with exit code 1: a bug"
    first = {"process": 2, "code": 1, "at": 100.0, "line": "a bug"}
    assert made.look(12.0) == [(GO, {"attempt": 1, "limit": 2, "cause": cause, "end": first})]
    assert made.seconds(12.0) is None


def test_the_cause_is_the_earliest_end_and_not_the_first_report() -> None:
    made = decisions()
    made.ended(end(0, line="Gloo AllGather failed: Connection reset by peer", at=100.02), 0, 10.0)
    made.ended(end(1, 137, "", at=100.0), 0, 10.1)
    made.ended(end(0, line="its process ended", at=90.0), 0, 10.2)
    for process in range(3):
        made.ready(process, 1, 11.0)
    ((kind, said),) = made.look(11.0)
    assert (kind, said["cause"]) == (GO, "process 1 ended with exit code 137")


def test_a_process_that_finished_is_named_once_when_the_others_go_on() -> None:
    made = decisions()
    made.finished(2, 10.0)
    made.finished(1, 20.0)
    assert (made.seconds(15.0), made.early_finish(15.0)) == (FINISHED_SECONDS - 5, None)
    assert [made.early_finish(10.0 + FINISHED_SECONDS) for _ in range(2)] == [2, None]
    assert made.seconds(80.0) is None


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ([end(1, at=5.0), end(2, line="lost process 1 on host b: its connection broke", at=4.0)], 1),
        ([end(0, line="ended with process 2 on host c, which was first: x", at=1.0), end(2, at=9.0)], 2),
        ([end(0, line="vm: process 0 of 3: ended with process 2 on host c, which was first: x"), end(2, at=101.0)], 2),
        ([end(0, line="lost process 1 of the pool", at=1.0), end(2, at=9.0)], 0),
        ([end(1, line="no step; behind the others: process 1 on host b", at=5.0), end(2, at=9.0)], 1),
        ([end(1, code=134, at=5.0), End(2, 137, 25.0, "", is_lost=True)], 2),
    ],
    ids=["lost another", "follows", "as its last word", "words of a program's own", "names itself", "a lost pod"],
)
def test_the_line_of_an_end_says_whether_it_follows_from_another(ends: list[End], first: int) -> None:
    assert first_of(ends, known_of).process == first


def test_a_final_code_wins_over_a_crash_that_came_before_it() -> None:
    made = decisions()
    made.ended(end(0), 0, 10.0)
    assert made.ended(end(1, 77), 0, 10.1) == [(OVER, {"reason": "exit code 77 ends the job"})]


def test_the_end_that_is_heard_first_need_not_be_the_cause() -> None:
    made = decisions()
    made.ended(end(0, line="RuntimeError: Connection closed by peer", at=100.0), 0, 10.0)
    assert made.ended(end(1, code=137, at=100.2), 0, 10.1) == []
    for process in range(3):
        made.ready(process, 1, 11.0)
    ((_, go),) = made.look(1000.0)
    assert go["cause"].startswith("process 1 ended with exit code 137")


def pause_after(made: Decisions, now: float) -> float | None:
    """Seconds until the attempt that follows one which fails at that moment."""
    made.ended(end(1), made.attempt, now)
    for process in range(3):
        made.ready(process, made.attempt, now)
    pause = made.seconds(now)
    assert pause is not None
    assert kinds(made.look(now + pause)) == [GO]
    return pause


def test_pauses_grow_from_attempt_to_attempt_that_fails_soon() -> None:
    made = decisions(limit=9)
    assert [pause_after(made, 100.0 * number) for number in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_an_attempt_that_lasted_is_followed_at_once() -> None:
    made = decisions(limit=9)
    pauses = [
        pause_after(made, now) for now in (0.0, 1.0, STEADY_SECONDS, 2 * STEADY_SECONDS + 2, 2 * STEADY_SECONDS + 3)
    ]
    assert pauses == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (76, "exit code 76 ends the job"),
        (77, "exit code 77 ends the job"),
        (78, "exit code 78 ends the job"),
        (0, "process 1 has finished"),
    ],
)
def test_what_another_try_does_not_mend_is_over(code: int, reason: str) -> None:
    made = decisions()
    assert made.ended(end(1, code), 0, 0.0) == [(OVER, {"reason": reason})]
    assert made.ended(end(2), 0, 0.0) == [], "said once"


@pytest.mark.parametrize("code", [1, 69, 75, 79, 80, 134, 137, 139, 143])
def test_every_other_code_is_tried_again(code: int) -> None:
    assert kinds(decisions().ended(end(1, code), 0, 0.0)) == [RESTART]


def test_the_limit_is_of_these_containers() -> None:
    made = decisions(limit=1)
    assert kinds(restarted(made, end(1))) == [GO]
    assert made.ended(end(1), 1, 0.0) == [(OVER, {"reason": "it started again 1 times here, the limit"})]


def test_a_launcher_that_has_not_come_yet_is_not_left_behind() -> None:
    made = Decisions(3, 5)
    made.arrived(2)
    said = made.ended(end(2), 0, 0.0)
    assert said == [(OVER, {"reason": "the launcher of process 1 is not connected"})]


def test_a_pod_that_goes_while_the_others_wait_ends_the_wait() -> None:
    made = decisions()
    made.ended(end(2), 0, 0.0)
    made.ready(0, 1, 1.0)
    assert made.gone(1) == [(OVER, {"reason": "the launcher of process 1 is gone"})]


def test_a_pod_that_goes_while_all_run_is_missed_at_the_next_failure() -> None:
    made = decisions()
    assert made.gone(1) == []
    assert kinds(made.ended(end(2), 0, 0.0)) == [OVER]


def test_a_program_that_cannot_be_killed_ends_the_wait() -> None:
    made = decisions()
    made.ended(end(2), 0, 0.0)
    made.ready(0, 1, 1.0)
    made.ready(2, 1, 1.0)
    assert made.look(READY_SECONDS - 0.1) == []
    assert made.look(READY_SECONDS) == [(OVER, {"reason": "process 1 was not ready within 60 s"})]


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_container_that_is_asked_to_stop_is_the_last_of_it(is_ending: bool) -> None:
    made = decisions()
    if is_ending:
        made.ended(end(2), 0, 0.0)
    assert made.stopping(1) == [(OVER, {"reason": "process 1 was asked to stop"})]
    assert made.ended(end(0), 0, 0.0) == []


def test_what_is_said_of_another_attempt_counts_for_nothing() -> None:
    made = decisions()
    restarted(made, end(1))
    assert made.ended(end(1), 0, 0.0) == []
    made.ended(end(1), 1, 0.0)
    made.ready(1, 1, 0.0)
    assert made.ready(1, 7, 0.0) == []
    assert made.seconds(0.0) == pytest.approx(READY_SECONDS), "nobody is ready for attempt 2"


WAIT = 100.0


def replaced(*, processes: int = 3, limit: int = 2, is_newcomer: bool = False) -> Decisions:
    """Where Kubernetes replaces lost pods, with all launchers connected."""
    made = Decisions(processes, limit, wait_seconds=WAIT, is_newcomer=is_newcomer)
    for process in range(1, processes) if not is_newcomer else ():
        made.arrived(process)
    return made


def test_a_lost_pod_ends_the_attempt_and_the_newcomer_joins_the_next() -> None:
    made = replaced()
    assert made.gone(1, 0.0, at=50.0) == []
    assert made.seconds(0.0) == LEAVE_SECONDS
    assert made.look(LEAVE_SECONDS) == [(RESTART, {"attempt": 1})]
    made.ready(0, 1, 6.0)
    made.ready(2, 1, 6.0)
    assert made.look(READY_SECONDS + 10) == [], "the one that is missing is not here"
    assert made.arrived(1, 80.0, at=None) == []
    made.ready(1, 1, 80.0)
    ((kind, said),) = made.look(80.0)
    assert (kind, said["cause"]) == (GO, "process 1 lost its pod: its container is gone")
    assert said["end"] == {"process": 1, "code": 137, "at": 50.0, "line": "its container is gone", "lost": True}


def test_a_newcomer_that_comes_before_the_loss_is_seen_ends_the_attempt() -> None:
    made = replaced()
    assert made.arrived(1, 3.0, at=None, lost_at=60.0) == [(RESTART, {"attempt": 1})]
    assert not made.is_running


def test_a_newcomer_that_was_never_here_joins_the_attempt_that_runs() -> None:
    made = Decisions(3, 2, wait_seconds=WAIT)
    assert made.arrived(1, 3.0, at=None) == []
    assert made.is_running


def test_a_connection_that_is_made_again_costs_nothing() -> None:
    made = replaced()
    made.gone(1, 0.0)
    assert made.arrived(1, 1.0, at=0) == []
    assert made.seconds(1.0) is None
    assert made.look(1000.0) == []


def test_pods_that_save_before_they_stop_are_not_ended_by_the_first_that_has() -> None:
    made = replaced()
    assert made.stopping(1, 0.0, 40.0) == []
    assert made.gone(1, 0.1, at=50.0) == []
    assert made.ended(end(2, 75, ""), 0, 1.0) == []
    assert kinds(made.ended(end(0, 75, ""), 0, 2.0)) == [RESTART], "all have ended"
    assert kinds(made.arrived(1, 20.0, at=None)) == []
    for process in range(3):
        made.ready(process, 1, 20.0)
    ((_, said),) = made.look(20.0)
    assert said["cause"] == "process 1 lost its pod: it was asked to stop"


def test_a_pod_that_is_asked_to_stop_has_not_ended_by_itself() -> None:
    """Its program, a trainer that compiles, says why it ends before its launcher does."""
    made = replaced()
    assert made.ended(end(1, 75, "SIGTERM outside the training loop: nothing to save"), 0, 0.0) == []
    assert made.stopping(1, 0.5, 40.0) == []
    made.look(LEAVE_SECONDS)
    made.arrived(1, 20.0, at=None)
    for process in range(3):
        made.ready(process, 1, 20.0)
    ((_, said),) = made.look(20.0)
    assert said["cause"] == "process 1 lost its pod: it was asked to stop"


def test_a_pod_that_is_not_replaced_in_time_ends_the_wait() -> None:
    made = replaced()
    made.ended(end(0), 0, 0.0)
    made.gone(2, 1.0)
    made.ready(0, 1, 2.0)
    made.ready(1, 1, 2.0)
    assert made.look(WAIT - 1) == []
    assert made.look(WAIT) == [(OVER, {"reason": "the pod of process 2 was not replaced within 100 s"})]


def test_a_lost_pod_takes_from_the_budget() -> None:
    made = replaced(limit=0)
    made.gone(1, 0.0)
    assert made.look(LEAVE_SECONDS) == [(OVER, {"reason": "it started again 0 times here, the limit"})]


def test_the_pod_of_launcher_0_that_stops_does_not_end_it_for_the_others() -> None:
    assert replaced().stopping(0) == []


@pytest.mark.parametrize(
    ("told", "attempts"),
    [([4], [5]), ([4, 4], [5]), ([4, 5], [5, 6]), ([5, 4], [6]), ([None, 4], [5]), ([None, None], [1])],
    ids=[
        "another knows",
        "all agree",
        "the newer wins",
        "the older is behind",
        "a newcomer waits",
        "all are newcomers",
    ],
)
def test_a_new_launcher_0_learns_the_attempt_from_the_others(told: list[int | None], attempts: list[int]) -> None:
    made = replaced(limit=9, is_newcomer=True)
    assert not made.is_running
    said = [each for number, at in enumerate(told, 1) for each in made.arrived(number, 1.0, at=at, lost_at=70.0)]
    assert said == [(RESTART, {"attempt": attempt}) for attempt in attempts]
    for process in range(3):
        made.ready(process, attempts[-1], 2.0)
    if len(told) == 1:
        return
    ((kind, go),) = made.look(2.0)
    assert (kind, go["attempt"], go["end"]["process"], go["end"]["at"]) == (GO, attempts[-1], 0, 70.0)


def test_a_new_launcher_0_to_which_nobody_comes_gives_up() -> None:
    made = replaced(is_newcomer=True)
    assert made.look(0.0) == []
    assert made.look(WAIT - 1) == []
    assert made.look(WAIT) == [(OVER, {"reason": "the pod of process 1 was not replaced within 100 s"})]
