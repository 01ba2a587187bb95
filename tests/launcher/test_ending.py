"""How long a program and what it leaves behind may take, decided without a process."""

import signal
from collections.abc import Callable

import pytest

from tpujob_contract.environment import margin_seconds
from tpujob_launcher.peers.timing import FINISHED_SECONDS, READY_SECONDS
from tpujob_launcher.supervise.ending import (
    ASKED_SECONDS,
    ASKED_TO_START_AGAIN_SECONDS,
    DRAIN_SECONDS,
    FROZEN_SECONDS,
    LEFTOVER_SECONDS,
    OWN_END_SECONDS,
    SAVING_SECONDS,
    SPEAKING_SECONDS,
    Act,
    Ending,
)
from tpujob_launcher.supervise.processes import KILLED_SECONDS
from tpujob_launcher.supervise.program_end import ProgramEnd

CHILD, COMMAND = 4711, 4712
NEVER = 1e9


def ending(
    *, grace_seconds: float = 30.0, exit_seconds: float | None = 5.0, silence_seconds: float | None = None
) -> Ending:
    return Ending(CHILD, grace_seconds=grace_seconds, exit_seconds=exit_seconds, silence_seconds=silence_seconds)


def acts(of: Ending, until: float, printed_at: float = 0.0) -> list[tuple[float, Act]]:
    """What is done up to a moment, and when, by a supervisor that looks whenever something may be due."""
    found, now = [], 0.0
    while now <= until:
        found += [(now, act) for act in of.look(now, 1000.0 + now, printed_at)]
        now += max(of.seconds(now, printed_at) or 0.0, 1e-3) if of.seconds(now, printed_at) is not None else NEVER
    return [(round(at, 1), act) for at, act in found]


def said(code: int, pid: int = CHILD) -> ProgramEnd:
    return ProgramEnd(pid, code, 1000.0, "E: x" if code else "")


@pytest.mark.parametrize(
    ("code", "exit_seconds", "done"),
    [
        pytest.param(
            1, 5.0, [(1.0, Act.NAME_FAILURE), (5.0, Act.END_FAILED), (5.0, Act.KILL)], id="failed, and others wait"
        ),
        pytest.param(1, None, [], id="one on its own may take its time"),
        pytest.param(75, 5.0, [(FINISHED_SECONDS, Act.NAME_FINISHED)], id="saved, to be started again: no failure"),
        pytest.param(75, None, [], id="the same on its own"),
        pytest.param(0, 5.0, [(FINISHED_SECONDS, Act.NAME_FINISHED)], id="a program that came to its end"),
    ],
)
def test_a_program_that_has_failed_is_ended_if_others_wait_for_it(
    code: int, exit_seconds: float | None, done: list[tuple[float, Act]]
) -> None:
    supervised = ending(exit_seconds=exit_seconds)
    assert supervised.reported(said(code), 0.0) == (code == 1)
    # What is killed is killed again until it is gone; here it never is.
    assert acts(supervised, FINISHED_SECONDS)[:3] == done


def test_a_command_of_a_script_that_has_failed_is_killed_alone() -> None:
    supervised = ending()
    assert not supervised.reported(said(1, COMMAND), 0.0), "the script may go on"
    assert [act for _, act in acts(supervised, 10.0)] == [Act.NAME_FAILURE, Act.END_FAILED, Act.KILL_FAILED]


@pytest.mark.parametrize(
    ("printed_at", "is_asked_to_stop", "done"),
    [
        (0.0, False, [(10.0, Act.NAME_SILENCE), (10.0, Act.SHOW_STACKS), (12.0, Act.KILL)]),
        (5.0, False, [(15.0, Act.NAME_SILENCE), (15.0, Act.SHOW_STACKS), (17.0, Act.KILL)]),
        (0.0, True, []),
    ],
    ids=["it printed nothing", "it printed since", "it is on its way out"],
)
def test_silence_counts_from_the_last_output(
    printed_at: float, is_asked_to_stop: bool, done: list[tuple[float, Act]]
) -> None:
    supervised = ending(silence_seconds=10.0)
    if is_asked_to_stop:
        supervised.asked_to_stop(signal.SIGTERM, 0.0, 1000.0)
    assert acts(supervised, 18.0, printed_at) == done
    assert supervised.failure is None or supervised.failure.at == pytest.approx(1000.0 + printed_at)


def test_a_frozen_program_is_killed_unless_it_goes_on() -> None:
    supervised = ending()
    assert supervised.froze(0.0, 1000.0)
    assert not supervised.froze(1.0, 1001.0), "it is the same stop"
    supervised.thawed()
    assert acts(supervised, FROZEN_SECONDS) == []
    assert supervised.froze(0.0, 1000.0)
    assert acts(supervised, FROZEN_SECONDS) == [(FROZEN_SECONDS, Act.END_FROZEN), (FROZEN_SECONDS, Act.KILL)]


@pytest.mark.parametrize("ended_by_peer", [False, True])
def test_who_ends_since_another_has_failed_reports_no_failure(ended_by_peer: bool) -> None:
    """On a host whose clock is behind, it would be taken for the first."""
    supervised = ending()
    if ended_by_peer:
        supervised.peer_failed(CRASHED, is_connected=False, is_silent=False, in_place=False, now=0.0)
    assert supervised.reported(ProgramEnd(CHILD, 1, 1000.0, "SystemExit: told"), 0.0) != ended_by_peer


STOPPED, CRASHED = (75, "asked to stop (SIGTERM at process 1)"), (1, "lost process 1")


@pytest.mark.parametrize(
    ("following", "in_place", "grace_seconds", "asked", "killed"),
    [
        pytest.param(CRASHED, False, 30.0, OWN_END_SECONDS, OWN_END_SECONDS + ASKED_SECONDS, id="a crash"),
        pytest.param(CRASHED, True, 30.0, 0.0, ASKED_TO_START_AGAIN_SECONDS, id="a crash after which all start again"),
        pytest.param(None, True, 30.0, 0.0, ASKED_TO_START_AGAIN_SECONDS, id="all start again"),
        pytest.param(STOPPED, False, 300.0, 0.0, 298.0, id="a stop: it may save"),
        pytest.param(STOPPED, True, 30.0, 0.0, 28.0, id="a stop after which all start again"),
        pytest.param(STOPPED, True, 300.0, 0.0, SAVING_SECONDS, id="no longer than launcher 0 waits"),
    ],
)
def test_how_long_a_program_may_take_that_has_to_end(
    following: tuple[int, str] | None, in_place: bool, grace_seconds: float, asked: float, killed: float
) -> None:
    supervised = ending(grace_seconds=grace_seconds)
    supervised.peer_failed(following, is_connected=False, is_silent=False, in_place=in_place, now=0.0)
    assert acts(supervised, 300.0) == [(asked, Act.ASK), (killed, Act.KILL)]
    assert killed < READY_SECONDS or not in_place


def test_a_launcher_whose_output_is_read_slowly_is_ready_in_time_where_all_start_again() -> None:
    """After the longest save, and what was left behind."""
    supervised = ending()
    assert supervised.drain_seconds(in_place=False) == DRAIN_SECONDS
    before = SAVING_SECONDS + LEFTOVER_SECONDS + KILLED_SECONDS
    assert before + supervised.drain_seconds(in_place=True) < READY_SECONDS
    supervised.asked_to_stop(signal.SIGTERM, 0.0, 1000.0)
    assert supervised.drain_seconds(in_place=True) == margin_seconds(30.0) / 2


def test_a_program_that_no_longer_answers_shows_its_stacks_before_it_is_killed() -> None:
    supervised = ending()
    supervised.peer_failed(CRASHED, is_connected=True, is_silent=True, in_place=False, now=0.0)
    assert acts(supervised, 10.0) == [(0.0, Act.SHOW_STACKS), (SPEAKING_SECONDS, Act.KILL)]


@pytest.mark.parametrize(
    ("grace_seconds", "asked_at", "least", "most"),
    [
        pytest.param(30.0, None, LEFTOVER_SECONDS, LEFTOVER_SECONDS, id="the program ended by itself"),
        pytest.param(4.0, None, 3.2, 3.2, id="a short grace period"),
        pytest.param(30.0, 80.0, LEFTOVER_SECONDS, LEFTOVER_SECONDS, id="much of the grace period is left"),
        pytest.param(30.0, 74.0, 0.0, 2.0, id="little is left"),
        pytest.param(30.0, 71.0, -60.0, -1.0, id="none is left"),
    ],
)
def test_leftovers_have_what_the_grace_period_has(
    grace_seconds: float, asked_at: float | None, least: float, most: float
) -> None:
    supervised = ending(grace_seconds=grace_seconds)
    if asked_at is not None:
        supervised.asked_to_stop(signal.SIGTERM, asked_at, 1000.0)
    assert least - 1e-9 <= supervised.leftover_seconds(100.0) <= most + 1e-9


ASKED, LATER = 1010.0, 1020.0


def stopped(of: Ending) -> None:
    of.asked_to_stop(signal.SIGTERM, 10.0, ASKED)


def killed(of: Ending) -> None:
    """Whatever was due, until it is killed."""
    acts(of, 1000.0)
    assert of.is_killed


def peer_fails(of: Ending) -> None:
    of.peer_failed(CRASHED, is_connected=False, is_silent=False, in_place=False, now=0.0)


def says(code: int) -> Callable[[Ending], object]:
    return lambda of: of.reported(said(code), 0.0)


def froze(of: Ending) -> None:
    of.froze(0.0, 1000.0)


@pytest.mark.parametrize(
    ("before", "code", "meant", "failure", "at", "ended_by_peer"),
    [
        pytest.param([], 0, 0, None, LATER, False, id="finished"),
        pytest.param([says(0)], 0, 0, None, 1000.0, False, id="finished, as it said before"),
        pytest.param([says(1)], 1, 1, (1, 1000.0), LATER, False, id="an error"),
        pytest.param([says(1)], 3, 3, (1, 1000.0), LATER, False, id="an error, and a code of its own"),
        pytest.param([says(1)], 128, 128, (1, 1000.0), LATER, False, id="an error, and the last code of its own"),
        pytest.param([says(1)], 129, 1, (1, 1000.0), LATER, False, id="an error, and a signal in an exit handler"),
        pytest.param([says(1)], 0, 0, None, LATER, False, id="an error that changed nothing"),
        pytest.param([says(1), killed], 137, 1, (1, 1000.0), LATER, False, id="an error, and killed for it"),
        pytest.param([], 134, 134, (134, LATER), LATER, False, id="aborted, and said nothing"),
        pytest.param([froze, killed], 137, 137, (137, 1000.0), LATER, False, id="frozen"),
        pytest.param([stopped], 0, 0, None, ASKED, False, id="stopped"),
        pytest.param([stopped], 1, 1, None, ASKED, False, id="stopped, with an error nobody saw"),
        pytest.param([stopped, killed], 137, 137, None, ASKED, False, id="stopped, and it did not listen"),
        pytest.param([stopped, says(0), killed], 137, 0, None, ASKED, False, id="stopped, and exit handlers waited"),
        pytest.param([stopped, says(0)], 139, 139, None, ASKED, False, id="stopped, and it crashed in an exit handler"),
        pytest.param([says(0), peer_fails, killed], 137, 137, None, 1000.0, True, id="another failed while it waited"),
        pytest.param([peer_fails], 1, 1, None, LATER, True, id="another failed"),
        pytest.param([peer_fails, killed], 137, 137, None, LATER, True, id="another failed, so it was killed"),
        pytest.param([peer_fails], 137, 137, None, LATER, False, id="somebody killed it, and another noticed first"),
    ],
)
def test_what_an_end_means(
    before: list[Callable[[Ending], object]],
    code: int,
    meant: int,
    failure: tuple[int, float] | None,
    at: float,
    ended_by_peer: bool,
) -> None:
    supervised = ending()
    for happened in before:
        happened(supervised)
    result = supervised.result(code, LATER, CRASHED)
    assert (result.code, result.stopped_at, result.ended_by_peer) == (meant, at, ended_by_peer)
    assert (result.failure and (result.failure.code, result.failure.at)) == failure
    assert (result.stop_signal, result.following) == (signal.SIGTERM if stopped in before else None, CRASHED)


def test_a_program_without_peers_has_no_failure_that_it_did_not_name() -> None:
    assert ending(exit_seconds=None).result(134, LATER, None).failure is None


@pytest.mark.parametrize(
    ("peer_fails_first", "code", "expected"),
    [
        (False, 143, (75, False, None)),
        (False, 75, (75, False, None)),
        (True, 143, (143, True, (1, "ended with process 1"))),
    ],
    ids=["killed in its exit handlers", "ended by itself", "it saved since it was told"],
)
def test_a_program_that_asks_for_another_start_keeps_its_code_when_that_makes_others_fail(
    peer_fails_first: bool, code: int, expected: tuple[int, bool, tuple[int, str] | None]
) -> None:
    supervised = ending()
    following = (1, "ended with process 1")
    if not peer_fails_first:
        supervised.reported(said(75), 0.0)
    supervised.peer_failed(following, is_connected=False, is_silent=False, in_place=False, now=0.5)
    if peer_fails_first:
        supervised.reported(said(75), 1.0)
    result = supervised.result(code, 1002.0, following)
    assert (result.code, result.ended_by_peer, result.following) == expected
