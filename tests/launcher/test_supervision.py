"""How long a program and what it leaves behind may take, decided without a process."""

import subprocess
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tpujob_launcher.child import supervisor
from tpujob_launcher.child.output import Tail
from tpujob_launcher.child.program_end import ProgramEnd, ProgramEnds
from tpujob_launcher.child.signals import SignalQueue
from tpujob_launcher.child.supervisor import (
    LEFTOVER_SECONDS,
    OWN_END_SECONDS,
    SAVING_SECONDS,
    TOLD_SECONDS,
    TOLD_TO_START_AGAIN_SECONDS,
    _Supervision,
)
from tpujob_launcher.peers.decisions import READY_SECONDS

CHILD = 4711


class Said:
    """A program's reports of its end."""

    def __init__(self, *ends: ProgramEnd) -> None:
        self._ends = list(ends)

    def receive(self) -> list[ProgramEnd]:
        return [self._ends.pop() for _ in self._ends[:]]


class Child:
    pid = CHILD


def supervision(*ends: ProgramEnd, grace_seconds: float = 30.0, exit_seconds: float | None = 5.0) -> Any:
    return _Supervision(
        cast("subprocess.Popen[bytes]", Child()),
        cast("SignalQueue", None),
        grace_seconds,
        cast("ProgramEnds", Said(*ends)),
        exit_seconds,
        None,
    )


@pytest.mark.parametrize(
    ("code", "exit_seconds", "waits_for"),
    [
        pytest.param(1, 5.0, ["_name_failure", "_end_failed"], id="a failed program that others wait for"),
        pytest.param(1, None, [], id="one on its own may take its time"),
        pytest.param(75, 5.0, ["_name_finished"], id="saved, to be started again: no failure"),
        pytest.param(75, None, [], id="the same on its own"),
        pytest.param(0, 5.0, ["_name_finished"], id="a program that came to its end"),
    ],
)
def test_a_program_that_has_failed_is_ended_if_others_wait_for_it(
    code: int, exit_seconds: float | None, waits_for: list[str]
) -> None:
    supervised = supervision(ProgramEnd(CHILD, code, 1000.0, "E: x" if code else ""), exit_seconds=exit_seconds)
    supervised._hear_program()
    assert [act.__name__ for act in supervised._alarms] == waits_for


@pytest.mark.parametrize(
    ("silent_seconds", "is_asked_to_stop", "is_ended"),
    [(5.0, False, False), (11.0, False, True), (11.0, True, False)],
    ids=["it printed since", "it did not", "it is on its way out"],
)
def test_silence_counts_from_the_last_output(
    silent_seconds: float, is_asked_to_stop: bool, is_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "send", lambda *arguments, **options: None)
    tail, supervised = Tail(), supervision()
    supervised.limit_silence(tail, 10.0)
    if is_asked_to_stop:
        supervised._stop_deadline = time.monotonic() + 10
    tail.heard_at -= silent_seconds
    ((look, _),) = supervised._alarms.items()
    supervised._alarms.clear()
    look()
    assert (supervised._failure is not None) == is_ended
    assert list(supervised._alarms) == {(False, False): [look], (False, True): [supervised._kill]}.get(
        (is_asked_to_stop, is_ended), []
    )


@pytest.mark.parametrize("was_told", [False, True])
def test_who_ends_since_another_has_failed_reports_no_failure(was_told: bool) -> None:
    """On a host whose clock is behind, it would be taken for the first."""
    supervised, said = supervision(ProgramEnd(CHILD, 1, 1000.0, "SystemExit: told")), []
    supervised._others = SimpleNamespace(fail=lambda *end: said.append(end))
    supervised._was_told = was_told
    supervised._hear_program()
    assert len(said) == (not was_told)


STOPPED, CRASHED = (75, "asked to stop (SIGTERM at process 1)"), (1, "lost process 1")


@pytest.mark.parametrize(
    ("following", "in_place", "grace_seconds", "seconds"),
    [
        pytest.param(CRASHED, 0, 30.0, OWN_END_SECONDS + TOLD_SECONDS, id="a crash"),
        pytest.param(CRASHED, 3, 30.0, TOLD_TO_START_AGAIN_SECONDS, id="a crash after which all start again"),
        pytest.param(None, 3, 30.0, TOLD_TO_START_AGAIN_SECONDS, id="all start again"),
        pytest.param(STOPPED, 0, 300.0, 298.0, id="a stop: it may save"),
        pytest.param(STOPPED, 3, 30.0, 28.0, id="a stop after which all start again"),
        pytest.param(STOPPED, 3, 300.0, SAVING_SECONDS, id="no longer than launcher 0 waits"),
    ],
)
def test_how_long_a_program_may_take_that_has_to_end(
    following: tuple[int, str] | None,
    in_place: int,
    grace_seconds: float,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "send", lambda *arguments, **options: None)
    supervised = supervision(grace_seconds=grace_seconds)
    supervised._others = SimpleNamespace(following=following, in_place=in_place, speaks=False, is_silent=False)
    supervised._end_since_told()
    asked, killed = (supervised._alarms[act] - time.monotonic() for act in (supervised._ask_to_end, supervised._kill))
    assert killed == pytest.approx(seconds, abs=0.5)
    assert asked == pytest.approx(OWN_END_SECONDS if (following, in_place) == (CRASHED, 0) else 0.0, abs=0.5)
    assert seconds < READY_SECONDS or not in_place


@pytest.mark.parametrize(
    ("grace_seconds", "deadline_in", "least", "most"),
    [
        pytest.param(30.0, None, LEFTOVER_SECONDS, LEFTOVER_SECONDS, id="the program ended by itself"),
        pytest.param(4.0, None, 3.2, 3.2, id="a short grace period"),
        pytest.param(30.0, 20.0, LEFTOVER_SECONDS, LEFTOVER_SECONDS, id="much of the grace period is left"),
        pytest.param(30.0, 2.0, 0.0, 2.0, id="little is left"),
        pytest.param(30.0, -1.0, -60.0, -1.0, id="none is left"),
    ],
)
def test_leftovers_have_what_the_grace_period_has(
    grace_seconds: float, deadline_in: float | None, least: float, most: float
) -> None:
    supervised = supervision(grace_seconds=grace_seconds)
    if deadline_in is not None:
        supervised._stop_deadline = time.monotonic() + deadline_in
    found = supervised._leftover_seconds()
    assert least - 1e-9 <= found <= most + 1e-9
