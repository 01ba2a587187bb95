"""Once a restart is booked, status says where the next attempt begins, and nothing of how fast the last one was."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, condition, ended, host, job, jobset, observed, recorded, status_of
from tests.operator.manifests import TRAINER
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.report import Progress, UnitCounts
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages.conditions import Type
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
TRAINS: dict[str, Any] = {"trainer": TRAINER, "command": None, "image": None}
LONG_AGO = format_time(NOW - timedelta(hours=2))
FIGURES = ("step", "progress.stepTime", "progress.loss", "progress.tokensPerSecond", "progress.dataWaitFraction")
OLD: dict[str, Any] = {
    "step": 120,
    "steps": 1000,
    "progress.stepTime": LONG_AGO,
    "startTime": LONG_AGO,
    "progress.loss": 2.5,
    "progress.tokensPerSecond": 700,
    "progress.dataWaitFraction": 0.5,
    "lastCheckpointStep": 100,
    "progress.goodput": {"training": 5},
}
NEXT_HOSTS = (host(0, attempt=1), host(1, attempt=1, ready=False))
ALL_NEXT_HOSTS = (host(0, attempt=1), host(1, attempt=1))
LEFT = Progress(phase="failed", step=125, loss=2.0, tokens_per_second=800.0, committed_step=110, is_final=True)
UNITS = {"total": 200, "done": 120}


def restarted(*, status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """The first attempt crashed at step 120, and JobSet has started the next one."""
    before = recorded(**{**OLD, **(status or {})})
    known = {key: value for key, value in before.items() if value is not None}
    values: dict[str, Any] = {"jobset": jobset(restarts=1), "hosts": NEXT_HOSTS, "ended": (ended(1, 1),)}
    return observed(job(status=known, **TRAINS, **(spec or {})), **{**values, **fields})


def figures(status: dict[str, Any]) -> dict[str, Any]:
    return {name: status[name] for name in FIGURES if name in status}


BOOKED: dict[str, tuple[Observed, dict[str, Any]]] = {
    "its hosts start": (restarted(), {"step": 100}),
    "there is no checkpoint": (restarted(status={"lastCheckpointStep": None}), {}),
    "a newer checkpoint was left": (
        restarted(hosts=(), ended=(ended(0, 1), ended(1, 1)), progress=LEFT),
        {"step": 110},
    ),
    "all hosts run again": (restarted(hosts=ALL_NEXT_HOSTS), {"step": 100, "progress.stepTime": format_time(NOW)}),
    "the next attempt has reported": (
        restarted(hosts=ALL_NEXT_HOSTS, progress=Progress(phase="training", step=103, loss=2.25)),
        {"step": 103, "progress.stepTime": format_time(NOW), "progress.loss": 2.25},
    ),
    "the same step, by chance": (
        restarted(hosts=ALL_NEXT_HOSTS, status={"step": 100}),
        {"step": 100, "progress.stepTime": format_time(NOW)},
    ),
    "units that are done stay done": (restarted(status={"progress.units": UNITS}), {"step": 120}),
}


@pytest.mark.parametrize(("seen", "expected"), BOOKED.values(), ids=BOOKED.keys())
def test_booked_restart_begins_at_the_last_checkpoint(seen: Observed, expected: dict[str, Any]) -> None:
    after = status_of(decide(seen, SETTINGS))
    assert after["internal.bookedRestarts"] == 1
    assert figures(after) == expected
    assert (after["steps"], after["progress.goodput"]) == (1000, {"training": 5})


UNBOOKED: dict[str, Observed] = {
    "the restart is not counted yet": restarted(jobset=jobset(), hosts=(host(0),)),
    "the last end is not seen yet": restarted(hosts=()),
    "no host has failed": restarted(jobset=jobset(), hosts=BOTH, ended=()),
    "it was booked before": restarted(status={"internal.bookedRestarts": 1, "restarts.total": 1}, hosts=ALL_NEXT_HOSTS),
    "the end of the job": restarted(spec={"restarts": {"crashes": 0}}),
    "a suspension that is under way": restarted(
        status={"phase": "Stopping", "hostsReady": 0},
        spec={"suspend": True},
        jobset=jobset(restarts=1, suspended=True),
        hosts=(),
        ended=(ended(0, 75, was_asked=True, asked_at=NOW), ended(1, 75, was_asked=True, asked_at=NOW)),
        pods_left=1,
    ),
}


@pytest.mark.parametrize("name", UNBOOKED)
def test_figures_stay_without_a_restart(name: str) -> None:
    after = status_of(decide(UNBOOKED[name], SETTINGS))
    assert {key: after[key] for key in ("step", "progress.loss", "progress.tokensPerSecond")} == {
        "step": 120,
        "progress.loss": 2.5,
        "progress.tokensPerSecond": 700,
    }


LAST_WORDS: dict[str, tuple[Progress, int, int]] = {
    # name: (what process 0 left at its end, the step after it, the last checkpoint)
    "a newer checkpoint": (LEFT, 110, 110),
    "no checkpoint of its own": (replace(LEFT, committed_step=None), 120, 100),
    "units that are done": (replace(LEFT, committed_step=None, units=UnitCounts(total=200, done=125)), 125, 100),
}


@pytest.mark.parametrize(("left", "step", "committed"), LAST_WORDS.values(), ids=LAST_WORDS.keys())
def test_last_words_count_for_what_they_saved(left: Progress, step: int, committed: int) -> None:
    after = status_of(decide(restarted(jobset=jobset(), hosts=(), progress=left), SETTINGS))
    assert (after["phase"], after["step"], after["lastCheckpointStep"]) == ("Restarting", step, committed)
    assert (after["progress.loss"], after["progress.tokensPerSecond"]) == (2.5, 700)


def test_last_words_do_not_bring_back_a_step() -> None:
    first = status_of(decide(restarted(), SETTINGS))
    seen = observed(job(status=first, **TRAINS), jobset=jobset(restarts=1), ended=(ended(1, 1),), progress=LEFT)
    assert figures(status_of(decide(seen, SETTINGS))) == {"step": 110}


def test_process_that_has_finished_before_its_peers_has_made_its_steps() -> None:
    finished = Progress(phase="finished", step=1000, committed_step=990, is_final=True)
    hosts = (host(0, ready=False, succeeded=True, finished_at=NOW), host(1))
    status = decide(restarted(jobset=jobset(), hosts=hosts, ended=(), progress=finished), SETTINGS).status
    assert (status.phase, status.step) == ("Running", 1000)
    alone = restarted(jobset=jobset(), hosts=hosts[:1], ended=(), progress=finished)
    status = decide(alone, SETTINGS).status
    assert (status.phase, status.step) == ("Starting", 1000)


AT_REST: dict[str, dict[str, Any]] = {
    "suspended": {"spec": {"suspend": True}},
    "taken back by Kueue": {"spec": {"queue": "team"}},
}


@pytest.mark.parametrize("fields", AT_REST.values(), ids=AT_REST.keys())
def test_job_without_processes_has_no_speed(fields: dict[str, Any]) -> None:
    stops = restarted(
        status={"phase": "Stopping"}, jobset=jobset(suspended=True), hosts=(), ended=(), pods_left=1, **fields
    )
    stopping = status_of(decide(stops, SETTINGS))
    assert (stopping["phase"], stopping["step"], stopping["progress.tokensPerSecond"]) == ("Stopping", 120, 700)
    rests = restarted(status=stopping, jobset=jobset(suspended=True), hosts=(), ended=(), **fields)
    assert figures(status_of(decide(rests, SETTINGS))) == {"step": 100}


def test_job_that_is_stopped_for_its_deadline_keeps_its_last_figures() -> None:
    seen = restarted(
        status={"phase": "Stopping"},
        spec={"activeDeadlineSeconds": 60},
        jobset=jobset(suspended=True),
        hosts=(),
        ended=(),
    )
    after = status_of(decide(seen, SETTINGS))
    assert (after["phase"], after["step"], after["progress.loss"]) == ("Failed", 120, 2.5)


RESUMED: dict[str, tuple[Observed, dict[str, Any]]] = {
    "resumed": (
        restarted(status={"phase": "Suspended"}, jobset=jobset(suspended=True), hosts=(), ended=()),
        {"step": 100},
    ),
    "resumed after a pause, the crash of which JobSet never counted": (
        restarted(
            status={"phase": "Restarting", "restarts.total": 1, "internal.bookedRestarts": 1},
            jobset=jobset(restarts=1, suspended=True),
            hosts=(),
            ended=(ended(1, 1, attempt=1),),
            progress=LEFT,
        ),
        {"step": 110},
    ),
}


@pytest.mark.parametrize(("seen", "expected"), RESUMED.values(), ids=RESUMED.keys())
def test_job_that_is_resumed_begins_at_the_last_checkpoint(seen: Observed, expected: dict[str, Any]) -> None:
    decision = decide(seen, SETTINGS)
    assert decision.step is Step.RESUME
    assert figures(status_of(decision)) == expected


def test_job_that_fails_keeps_its_last_words() -> None:
    seen = restarted(spec={"restarts": {"crashes": 0}}, progress=LEFT)
    after = status_of(decide(seen, SETTINGS))
    assert (after["phase"], after["step"], after["progress.loss"]) == ("Failed", 125, 2.0)


EARLY: dict[str, tuple[Progress, int | None, int]] = {
    # name: (report, step before, step after)
    "before it restores": (Progress(phase="starting", step=0), 100, 100),
    "while it restores": (Progress(phase="restoring", step=0), 100, 100),
    "it is stopped before it restores": (Progress(phase="stopping", step=0), 100, 100),
    "it fails before it restores": (Progress(phase="failed", step=0), 100, 100),
    "it has restored an earlier one": (Progress(phase="restoring", step=90), 100, 90),
    "it begins anew": (Progress(phase="compiling", step=0), 100, 0),
    "the first start": (Progress(phase="starting", step=0), None, 0),
}


@pytest.mark.parametrize(("progress", "before", "after"), EARLY.values(), ids=EARLY.keys())
def test_process_that_restores_has_not_lost_all_steps(progress: Progress, before: int | None, after: int) -> None:
    known = {"internal.bookedRestarts": 1, "restarts.total": 1, "step": before}
    seen = restarted(status=known, hosts=ALL_NEXT_HOSTS, progress=progress)
    assert decide(seen, SETTINGS).status.step == after


WATCHED: dict[str, Progress | None] = {
    "no report yet": None,
    "before it restores": Progress(phase="restoring", step=0),
    "restoring": Progress(phase="restoring"),
    "the restored step": Progress(phase="compiling", step=100),
}


@pytest.mark.parametrize("progress", WATCHED.values(), ids=WATCHED.keys())
def test_attempt_that_nobody_saw_start_is_no_stall(progress: Progress | None) -> None:
    """The operator was away for the restart, and the recorded time is of a step of the attempt before."""
    status = status_of(decide(restarted(hosts=ALL_NEXT_HOSTS, progress=progress), SETTINGS))
    assert (status["phase"], status["progress.stepTime"]) == ("Running", format_time(NOW))
    assert condition(status, Type.STALLED) is None


@pytest.mark.parametrize("progress", WATCHED.values(), ids=WATCHED.keys())
def test_attempt_that_makes_no_step_is_stalled(progress: Progress | None) -> None:
    status = status_of(decide(restarted(hosts=ALL_NEXT_HOSTS), SETTINGS))
    later = NOW + timedelta(seconds=SETTINGS.stalled_after_seconds * 4)
    seen = restarted(hosts=ALL_NEXT_HOSTS, status=status, progress=progress, now=later)
    assert decide(seen, SETTINGS).status.phase == "Stalled"


RENEWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # name: (status before, spec now)
    "a retry": ({"phase": "Failed"}, {"retry": 1}),
    "an edit": ({"phase": "Failed", "internal.specHash": "another"}, {"args": ["x"]}),
}


@pytest.mark.parametrize(("before", "spec"), RENEWED.values(), ids=RENEWED.keys())
def test_new_incarnation_begins_at_the_last_checkpoint(before: dict[str, Any], spec: dict[str, Any]) -> None:
    known = recorded(**{**OLD, **before})
    after = status_of(decide(observed(job(status=known, generation=2, **spec)), SETTINGS))
    assert after["incarnation"] == 2
    assert figures(after) == {"step": 100}


BEFORE_THAT = Progress(phase="failed", step=80, loss=3.0, committed_step=70, committed_at=NOW, is_final=True)


@pytest.mark.parametrize("phase", ["Running", "Stopping"])
def test_last_words_of_a_pod_of_before_take_no_checkpoint_back(phase: str) -> None:
    """An operator that starts is told of a pod that others have followed, and not of those."""
    running: dict[str, Any] = {"jobset": jobset(restarts=0), "hosts": (host(0), host(1)), "ended": ()}
    seen = restarted(status={"phase": phase}, progress=BEFORE_THAT, **running)
    status = status_of(decide(seen, SETTINGS))
    assert (status["lastCheckpointStep"], status["step"], status["progress.loss"]) == (100, 120, 2.5)


def test_last_words_of_a_finished_process_count_but_for_an_older_checkpoint() -> None:
    done = tuple(host(index, ready=False, succeeded=True) for index in (0, 1))
    finished = replace(BEFORE_THAT, phase="finished", step=1000)
    seen = restarted(jobset=jobset(restarts=0, outcome="Completed"), hosts=done, ended=(), progress=finished)
    status = status_of(decide(seen, SETTINGS))
    assert (status["phase"], status["step"], status["lastCheckpointStep"]) == ("Succeeded", 1000, 100)
