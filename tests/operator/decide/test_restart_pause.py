"""Restarts that bring no progress are put off, and those without a known cause are limited."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, ended, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import (
    LONGEST_PAUSE_SECONDS,
    MOST_UNEXPLAINED,
    _in_a_row,
    account,
    pause_seconds,
)
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Ended, Observed
from tpujob_resource.messages.conditions import Reason, Type, condition
from tpujob_resource.models.restart_causes import RESTARTS, Cause
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
ASKED: dict[str, Any] = {"was_asked": True, "asked_at": NOW}


@pytest.mark.parametrize(
    ("restarts", "seconds"), [(0, 0), (1, 0), (2, 10), (3, 20), (4, 40), (6, 160), (7, 300), (1000, 300)]
)
def test_pause_doubles_up_to_five_minutes(restarts: int, seconds: float) -> None:
    assert pause_seconds(restarts, 10) == seconds <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("cause", RESTARTS)
def test_restarts_of_every_cause_are_counted_in_a_row(cause: Cause) -> None:
    assert _in_a_row(observed(job(), jobset=jobset()), Counter({cause: 1}))["internal.restarts_without_progress"] == 1


def restarted(number: int, *ends: Ended, now: datetime = NOW, status: dict[str, Any] | None = None) -> Observed:
    """So many restarts of the JobSet; nobody has looked since the one before the last."""
    books = {"phase": "Running", "internal.bookedRestarts": number - 1, "restarts.total": number - 1, **(status or {})}
    its = jobset(restarts=number)
    seen = observed(job(status=recorded(**books)), jobset=its, ended=ends, now=now)
    return replace(seen, hosts=(replace(BOTH[0], attempt=number, ready=False),))


PAUSED = {"phase": "Restarting", "restarts.nextTime": format_time(NOW), "internal.restartTime": format_time(NOW)}


@pytest.mark.parametrize(
    ("seconds", "pods_left", "step"),
    [(1, 2, None), (1, 0, Step.RESUME), (59, 1, None), (61, 1, Step.RESUME)],
    ids=["its pods still run", "they are gone", "one is slow", "the node of one is lost"],
)
def test_pause_lasts_until_the_pods_that_it_stopped_are_gone(seconds: float, pods_left: int, step: Step | None) -> None:
    """Their ends could not be told from those of the next start, and they hold the machines."""
    its = jobset(restarts=2, suspended=True)
    status = recorded(**PAUSED, bookedRestarts=2)
    later = NOW + timedelta(seconds=seconds)
    seen = observed(job(status=status, gracePeriodSeconds=30), jobset=its, pods_left=pods_left, now=later)
    decision = decide(seen, SETTINGS)
    assert decision.step is step
    assert decision.status.phase == ("Starting" if step else "Restarting")


ONCE: dict[str, Any] = {
    "internal.restartsWithoutProgress": 1,
    "internal.restartedAtStep": 100,
    "internal.restartTime": format_time(NOW),
}
LATER = NOW + timedelta(minutes=5)

SECOND = {
    # name: (further fields of the status, seconds since the first restart, restarts in a row)
    "no checkpoint in between": ({"lastCheckpointStep": 100}, 300, 2),
    "a newer checkpoint": ({"lastCheckpointStep": 101}, 300, 1),
    "none, but it lasted for an hour": ({"lastCheckpointStep": 100}, 3600, 1),
    "none for almost an hour": ({"lastCheckpointStep": 100}, 3599, 2),
}


@pytest.mark.parametrize(("status", "seconds", "number"), SECOND.values(), ids=SECOND.keys())
def test_progress_ends_a_series(status: dict[str, Any], seconds: float, number: int) -> None:
    seen = restarted(2, ended(0, 1, attempt=1), now=NOW + timedelta(seconds=seconds), status={**ONCE, **status})
    assert account(seen)["internal.restarts_without_progress"] == number


@pytest.mark.parametrize(
    "end",
    [ended(0, 1, attempt=1), ended(0, 75, attempt=1), ended(0, 143, attempt=1, **ASKED)],
    ids=["crash", "unexplained", "disruption"],
)
def test_second_restart_is_put_off_whatever_its_cause(end: Ended) -> None:
    seen = restarted(2, end, status={**ONCE, "lastCheckpointStep": 100})
    decision = decide(seen, SETTINGS)
    Status.model_validate(status_of(decision))
    assert (decision.status.phase, decision.step) == ("Restarting", Step.SUSPEND)
    assert status_of(decision)["restarts.nextTime"] == format_time(NOW + timedelta(seconds=10))
    assert decision.requeue_after_seconds == 10
    found = condition(decision.status, Type.RUNNING)
    assert found is not None
    assert found.reason == Reason.RESTART_PAUSED


def test_paused_job_goes_on_in_time_and_its_message_stays() -> None:
    seen = restarted(2, ended(0, 1, attempt=1), status={**ONCE, "lastCheckpointStep": 100})
    status = status_of(decide(seen, SETTINGS))
    waiting = observed(
        job(status=dict(status)), jobset=jobset(restarts=3, suspended=True), now=NOW + timedelta(seconds=9)
    )
    decision = decide(waiting, SETTINGS)
    assert (decision.status.phase, decision.step) == ("Restarting", None)
    assert status_of(decision)["message"] == status["message"]
    assert status_of(decision)["internal.restartsWithoutProgress"] == 2
    due = replace(waiting, manifest=job(status=status_of(decision)), now=NOW + timedelta(seconds=10))
    decision = decide(due, SETTINGS)
    assert (decision.status.phase, decision.step) == ("Starting", Step.RESUME)
    assert "restarts.nextTime" not in status_of(decision)


def test_job_that_runs_again_is_not_stopped_for_a_pause() -> None:
    seen = replace(restarted(2, ended(0, 1, attempt=1), status=ONCE), hosts=BOTH)
    assert decide(seen, SETTINGS).step is None


@pytest.mark.parametrize("spec", [{"queue": "a"}, {"suspend": True}], ids=["queue", "suspend"])
def test_somebody_else_s_suspension_is_left_alone(spec: dict[str, Any]) -> None:
    seen = restarted(2, ended(0, 1, attempt=1), status=ONCE)
    seen = replace(seen, manifest={**seen.manifest, "spec": {**seen.manifest["spec"], **spec}})
    assert "restarts.nextTime" not in status_of(decide(seen, SETTINGS))


def history(number: int, *ends: Ended) -> tuple[str, int]:
    """Phase after so many restarts that each end alike, a minute apart, and the number of the last one."""
    status: dict[str, Any] = {}
    for attempt in range(1, number + 1):
        last = tuple(replace(end, attempt=attempt - 1) for end in ends)
        seen = restarted(attempt, *last, now=NOW + timedelta(minutes=attempt), status=status)
        status = status_of(decide(seen, SETTINGS))
        if status["phase"] == "Failed":
            return status["phase"], attempt
    return status["phase"], number


SERIES = {
    # name: (ends of each attempt, phase and number of the last restart)
    "75 without anybody who asked": ((ended(0, 75),), ("Failed", MOST_UNEXPLAINED + 1)),
    "nobody saw": ((), ("Failed", MOST_UNEXPLAINED + 1)),
    "restarts.charged": ((ended(0, 1),), ("Failed", 4)),
    "preemptions": ((ended(0, 143, **ASKED, is_disrupted=True),), ("Restarting", 1000)),
}


@pytest.mark.parametrize(("ends", "expected"), SERIES.values(), ids=SERIES.keys())
def test_series_of_a_thousand_restarts(ends: tuple[Ended, ...], expected: tuple[str, int]) -> None:
    assert history(1000, *ends) == expected


def test_restarts_that_nobody_saw_count_once_a_look() -> None:
    status = recorded(bookedRestarts=1, total=1, restartsWithoutProgress=2, unexplainedWithoutProgress=1)
    seen = observed(job(status=status | {"internal.restartedAtStep": 0}), jobset=jobset(restarts=4), hosts=BOTH)
    booked = account(seen)
    assert (booked["internal.restarts_without_progress"], booked["internal.unexplained_without_progress"]) == (3, 2)


def test_a_newer_checkpoint_forgets_restarts_that_nobody_saw() -> None:
    status = recorded(bookedRestarts=1, total=1, restartsWithoutProgress=2, unexplainedWithoutProgress=2)
    status |= {"internal.restartedAtStep": 5, "lastCheckpointStep": 6}
    booked = account(observed(job(status=status), jobset=jobset(restarts=2), hosts=BOTH))
    assert (booked["internal.restarts_without_progress"], booked["internal.unexplained_without_progress"]) == (1, 1)
