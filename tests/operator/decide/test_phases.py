"""Phases between start and end, each with its condition, its reason and what to do."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import (
    BOTH,
    NOW,
    condition,
    ended,
    host,
    job,
    jobset,
    observed,
    recorded,
    status_of,
)
from tpujob_contract.reports.termination_message import program_code_line
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Ended, Notice, Observed
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.times import format_time

SETTINGS = Settings(stalled_after_seconds=600)
TRAINER: dict[str, Any] = {
    "image": None,
    "command": None,
    "trainer": {"model": {"preset": "tiny"}, "data": {"path": "/data"}, "steps": 9},
}
LOST_HOST = (ended(1, 143, was_asked=True, is_disrupted=True, asked_at=NOW),)

RESTARTING = {
    # name: (observed fields, phase, part of the message)
    "a host has crashed": (
        {"jobset": jobset(), "hosts": (host(0),), "ended": (ended(1, 1),)},
        "Restarting",
        "slice 0 host 1 (pod llama-w-0-1-abcde) failed with exit code 1, crashed. 1 of 2 hosts are ready.",
    ),
    "JobSet has restarted": (
        {"jobset": jobset(restarts=1), "hosts": (host(0, attempt=1),), "ended": (ended(1, 1),)},
        "Restarting",
        "Restart 1, after a crash",
    ),
    "a host was evicted": (
        {"jobset": jobset(restarts=3), "ended": (ended(1, 143, attempt=2, was_asked=True, is_disrupted=True),)},
        "Restarting",
        "Restart 3, after a disruption, which is free: Pod llama-w-0-1-abcde was evicted",
    ),
    "nobody saw why": (
        {"jobset": jobset(restarts=1)},
        "Restarting",
        "Restart 1, after an end without a known cause: Nobody saw how it ended.",
    ),
    "it has restarted": (
        {"jobset": jobset(restarts=1), "hosts": (host(0, attempt=1), host(1, attempt=1)), "ended": (ended(1, 1),)},
        "Running",
        "All 2 hosts",
    ),
    "its machine was taken and there is no other": (
        {
            "jobset": jobset(restarts=1),
            "hosts": (host(0, attempt=1), host(1, attempt=1, ready=False, unschedulable="0/1 nodes")),
            "ended": LOST_HOST,
        },
        "WaitingForCapacity",
        "0/1 nodes",
    ),
    "its image is gone": (
        {
            "jobset": jobset(restarts=1),
            "hosts": (host(0, attempt=1, ready=False, waiting_reason="ErrImagePull", waiting_message="denied"),),
        },
        "Restarting",
        "Restart 1",
    ),
}


@pytest.mark.parametrize(("fields", "phase", "words"), RESTARTING.values(), ids=RESTARTING.keys())
def test_restart_says_its_cause(fields: dict[str, Any], phase: str, words: str) -> None:
    status = decide(observed(job(status=recorded(startTime=format_time(NOW))), **fields), SETTINGS).status
    assert status.phase == phase
    assert words in (status.message or "")


def test_resuming_is_no_restart() -> None:
    status = recorded("Starting", bookedRestarts=2)
    seen = observed(job(status=status), jobset=jobset(restarts=2), hosts=(host(0, attempt=2),))
    assert status_of(decide(seen, SETTINGS))["phase"] == "Starting"


def notice(reason: str, message: str, *, age: float = 0) -> Notice:
    return Notice(reason=reason, message=message, last_seen=NOW - timedelta(seconds=age))


WAITING = {
    # name: (events, reason, whether somebody has to act, part of the message)
    "nobody makes nodes": ((), Reason.UNSCHEDULABLE, True, "0/3 nodes fit. It starts when machines"),
    "only the scheduler speaks": (
        (notice("FailedScheduling", "0/3"),),
        Reason.UNSCHEDULABLE,
        True,
        "compare the node pool's labels",
    ),
    "asked for": (
        (notice("TriggeredScaleUp", "pod triggered scale-up: [{pool 0->2}]"),),
        Reason.SCALE_UP_REQUESTED,
        False,
        "Machines for v6e:4x4 have been asked for",
    ),
    "no pool": (
        (notice("NotTriggerScaleUp", "pod didn't trigger scale-up: 2 node(s) didn't match"),),
        Reason.NO_POOL_FITS,
        True,
        "Make a pool for v6e:4x4",
    ),
    "stockout": (
        (notice("FailedScaleUp", "Node scale up in zones a failed: GCE out of resources."),),
        Reason.OUT_OF_RESOURCES,
        False,
        "another zone",
    ),
    "quota": ((notice("FailedScaleUp", "GCE quota exceeded"),), Reason.QUOTA_EXCEEDED, True, "Ask for more TPU quota"),
    "shape": (
        (notice("FailedScaleUp", "Invalid TPU topology"),),
        Reason.TOPOLOGY_REFUSED,
        True,
        "Correct the node pool or spec.accelerator",
    ),
    "reservation": (
        (notice("FailedScaleUp", "Reservation capacity exceeded"),),
        Reason.RESERVATION_UNUSABLE,
        True,
        "spec.capacity.reservation",
    ),
    "configuration": (
        (notice("FailedScaleUp", "Invalid TPU configuration"),),
        Reason.TOPOLOGY_REFUSED,
        True,
        "Correct the node pool or spec.accelerator",
    ),
    "placement": (
        (notice("FailedScaleUp", "Unsupported compact placement"),),
        Reason.TOPOLOGY_REFUSED,
        True,
        "Correct the node pool or spec.accelerator",
    ),
    "addresses": ((notice("FailedScaleUp", "IP space exhausted"),), Reason.SCALE_UP_FAILED, True, "IP space exhausted"),
    "account": (
        (notice("FailedScaleUp", "Service account was deleted"),),
        Reason.SCALE_UP_FAILED,
        True,
        "Service account was deleted",
    ),
    "something else": ((notice("FailedScaleUp", "no idea"),), Reason.SCALE_UP_FAILED, False, "tries again"),
    "the newest word counts": (
        (notice("TriggeredScaleUp", "yes"), notice("NotTriggerScaleUp", "no", age=60)),
        Reason.SCALE_UP_REQUESTED,
        False,
        "nothing to do",
    ),
}


@pytest.mark.parametrize(("notices", "reason", "blocked", "words"), WAITING.values(), ids=WAITING.keys())
def test_waiting_for_capacity_says_for_what(
    notices: tuple[Notice, ...], reason: Reason, blocked: bool, words: str
) -> None:
    seen = observed(
        job(status=recorded("Starting"), accelerator="v6e:4x4"),
        jobset=jobset(hosts_per_slice=4),
        hosts=(host(0, ready=False, unschedulable="0/3 nodes fit"),),
        capacity_notices=notices,
    )
    status = status_of(decide(seen, SETTINGS))
    assert (status["phase"], condition(status, Type.RUNNING)) == ("WaitingForCapacity", ("False", reason))
    assert words in status["message"]
    assert condition(status, Type.BLOCKED) == (("True", reason) if blocked else None)


def test_other_hosts_of_a_slice_wait_for_its_first() -> None:
    """JobSet's webhook refuses them until then: no obstacle of its own."""
    refusal = "admission webhook denied the request: follower pod node selector for topology domain not found."
    hosts = (host(0, ready=False, unschedulable="0/3 nodes"),)
    seen = observed(job(status=recorded("Starting")), jobset=jobset(), hosts=hosts, creation_failure=refusal)
    assert status_of(decide(seen, SETTINGS))["phase"] == "WaitingForCapacity"
    without = observed(job(status=recorded("Starting")), jobset=jobset(), creation_failure=refusal)
    assert condition(status_of(decide(without, SETTINGS)), Type.BLOCKED) is None


def at_step(seconds_ago: float, *, step: int = 7, phase: str = "Running") -> dict[str, Any]:
    return recorded(phase, step=step, stepTime=format_time(NOW - timedelta(seconds=seconds_ago)))


def training(step: int = 7, phase: str = "training") -> Progress:
    return Progress(phase=phase, step=step)


def done(seconds_ago: float) -> Any:
    return host(1, ready=False, succeeded=True, finished_at=NOW - timedelta(seconds=seconds_ago))


STALLS: dict[str, tuple[Observed, Reason | None]] = {
    "a step lately": (observed(job(status=at_step(599), **TRAINER), hosts=BOTH, progress=training()), None),
    "no step for long": (
        observed(job(status=at_step(600), **TRAINER), hosts=BOTH, progress=training()),
        Reason.NO_STEP,
    ),
    "no step for long, and one now": (
        observed(job(status=at_step(900), **TRAINER), hosts=BOTH, progress=training(step=8)),
        None,
    ),
    "compiling for long": (
        observed(job(status=at_step(1700), **TRAINER), hosts=BOTH, progress=training(phase="compiling")),
        None,
    ),
    "compiling for ever": (
        observed(job(status=at_step(1800), **TRAINER), hosts=BOTH, progress=training(phase="compiling")),
        Reason.NO_STEP,
    ),
    "no answer for not so long": (observed(job(status=at_step(1799), **TRAINER), hosts=BOTH), None),
    "no answer for long": (observed(job(status=at_step(1800), **TRAINER), hosts=BOTH), Reason.NO_REPORT),
    "no answer from a foreign program": (observed(job(status=at_step(9999)), hosts=BOTH), None),
    "no step of a loop of one's own for long": (
        observed(job(status=at_step(600)), hosts=BOTH, progress=training()),
        Reason.NO_STEP,
    ),
    "a foreign program that reports no steps": (
        observed(
            job(status=recorded(stepTime=format_time(NOW - timedelta(seconds=9999)))),
            hosts=BOTH,
            progress=Progress(phase="serving"),
        ),
        None,
    ),
    "never asked": (observed(job(status=recorded(), **TRAINER), hosts=BOTH, progress=training()), None),
    "a peer has just finished": (observed(job(status=at_step(0)), hosts=(host(0), done(119))), None),
    "a peer finished long ago": (observed(job(status=at_step(0)), hosts=(host(0), done(120))), Reason.PEERS_FINISHED),
    "a worker finished long ago": (
        observed(job(status=at_step(0), workers=2, accelerator="cpu:1x1"), hosts=(host(0), done(9999))),
        None,
    ),
}


@pytest.mark.parametrize(("seen", "reason"), STALLS.values(), ids=STALLS.keys())
def test_stall_is_told_from_slowness(seen: Observed, reason: Reason | None) -> None:
    seen = Observed(manifest=seen.manifest, jobset=jobset(), hosts=seen.hosts, progress=seen.progress, now=seen.now)
    status = status_of(decide(seen, SETTINGS))
    assert status["phase"] == ("Running" if reason is None else "Stalled")
    assert condition(status, Type.STALLED) == (None if reason is None else ("True", reason))
    assert condition(status, Type.RUNNING) == ("True", Reason.ALL_HOSTS_READY)


@pytest.mark.parametrize("phase", ["Restarting", "Starting", "Suspended"])
@pytest.mark.parametrize("progress", [training(), None], ids=["training", "no report"])
def test_hosts_that_have_just_come_up_are_not_stalled(phase: str, progress: Progress | None) -> None:
    waited = at_step(9999) | {"phase": phase}
    seen = observed(job(status=waited, **TRAINER), jobset=jobset(), hosts=BOTH, progress=progress)
    status = status_of(decide(seen, SETTINGS))
    assert status["phase"] == "Running"
    assert status["progress.stepTime"] == format_time(NOW)


def test_stall_ends_with_the_next_step() -> None:
    first = observed(job(status=at_step(600), **TRAINER), jobset=jobset(), hosts=BOTH, progress=training())
    status = status_of(decide(first, SETTINGS))
    assert status["phase"] == "Stalled"
    assert "deleting the pod restarts the job" in status["message"]
    later = observed(job(status=status, **TRAINER), jobset=jobset(), hosts=BOTH, progress=training(step=8))
    status = status_of(decide(later, SETTINGS))
    assert (status["phase"], status["progress.stepTime"]) == ("Running", format_time(NOW))
    assert condition(status, Type.STALLED) == ("False", Reason.PROGRESSING)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended(1, 143, was_asked=True, asked_at=NOW), Reason.POD_REPLACED),
        (ended(1, 137), Reason.POD_REPLACED),
        (ended(1, 137, message=program_code_line(137)), Reason.RESTARTING),
        (ended(1, 1), Reason.RESTARTING),
    ],
    ids=["deleted", "container killed", "program killed after the last attempt", "crashed"],
)
def test_only_a_pod_that_alone_is_lost_is_said_to_be_replaced(end: Ended, reason: Reason) -> None:
    seen = observed(job(status=recorded(), inPlaceRestarts=2), jobset=jobset(), hosts=(host(0),), ended=(end,))
    assert condition(status_of(decide(seen, SETTINGS)), Type.RUNNING) == ("False", reason)


def test_a_job_whose_spec_is_refused_since_an_upgrade_is_restarted_all_the_same() -> None:
    manifest = job(status=recorded(), inPlaceRestarts=2, accelerator="of-before")
    seen = observed(manifest, jobset=jobset(), hosts=(host(0),), ended=(ended(1, 1),))
    assert decide(seen, SETTINGS).status.phase == "Restarting"


@pytest.mark.parametrize("is_suspended", [False, True])
def test_jobset_goes_where_its_namespace_waits_for_pods_that_its_jobs_keep(is_suspended: bool) -> None:
    there = jobset(suspended=is_suspended)
    seen = observed(job(status=recorded(), suspend=is_suspended), jobset=there, is_namespace_deleted=True)
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step) == ("Stopping", Step.DELETE)
    assert decide(replace(seen, jobset=replace(there, being_deleted=True)), SETTINGS).step is None


def test_missing_worker_is_no_new_start() -> None:
    status = recorded(startTime=format_time(NOW))
    seen = observed(job(status=status, workers=2, accelerator="cpu:1x1"), jobset=jobset(), hosts=(host(0),))
    decided = status_of(decide(seen, SETTINGS))
    assert (decided["phase"], decided["ready"], decided["message"]) == ("Running", "1/2", "1 of 2 hosts are ready.")
    assert condition(decided, Type.RUNNING) == ("True", Reason.HOSTS_STARTING)


def started(seconds_ago: float, phase: str = "Running") -> dict[str, Any]:
    return recorded(phase, startTime=format_time(NOW - timedelta(seconds=seconds_ago)))


DEADLINES = {
    # name: (status, further spec, observed fields, phase, step, seconds until the next look)
    "not over": (started(50), {}, {"hosts": BOTH}, "Running", None, 30.0),
    "soon over": (started(98), {}, {"hosts": BOTH}, "Running", None, 2.0),
    "over": (started(100), {}, {"hosts": BOTH, "pods_left": 2}, "Stopping", Step.SUSPEND, 15.0),
    "over, pods use their grace": (
        started(101, "Stopping"),
        {},
        {"jobset": jobset(suspended=True), "pods_left": 1},
        "Stopping",
        None,
        15.0,
    ),
    "over, pods gone": (started(130, "Stopping"), {}, {"jobset": jobset(suspended=True)}, "Failed", None, None),
    "over, in a queue": (started(100), {"queue": "a"}, {"hosts": BOTH}, "Failed", Step.DELETE, 15.0),
    "never started": (recorded("Starting"), {}, {"hosts": (host(0),)}, "Starting", None, 2.0),
}


@pytest.mark.parametrize(
    ("status", "spec", "fields", "phase", "step", "again"), DEADLINES.values(), ids=DEADLINES.keys()
)
def test_deadline_ends_the_job_after_its_grace(
    status: dict[str, Any],
    spec: dict[str, Any],
    fields: dict[str, Any],
    phase: str,
    step: Step | None,
    again: float | None,
) -> None:
    seen = observed(job(status=status, activeDeadlineSeconds=100, **spec), **{"jobset": jobset(), **fields})
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step, decision.requeue_after_seconds) == (phase, step, again)
    if phase == "Failed":
        assert condition(status_of(decision), Type.FAILED) == ("True", Reason.DEADLINE_EXCEEDED)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [({}, 60), ({"capacity": {"spot": True}}, 20), ({"capacity": {"spot": True}, "gracePeriodSeconds": 10}, 10)],
    ids=["as asked", "what spot gives", "less than spot gives"],
)
@pytest.mark.parametrize("queue", [{}, {"queue": "q"}], ids=["no queue", "queue"])
def test_stopping_says_what_pods_are_given(spec: dict[str, Any], queue: dict[str, Any], seconds: int) -> None:
    seen = observed(job(status=recorded(), suspend=True, **spec, **queue), jobset=jobset(), hosts=BOTH, pods_left=2)
    message = decide(seen, Settings(spot_grace_seconds=20, network_policies=False)).status.message or ""
    assert f"grace period of up to {seconds} s" in message


@pytest.mark.parametrize(
    ("suspended", "phase", "step"),
    [(True, "Queued", None), (False, "Starting", None)],
    ids=["before it runs", "a queue has resumed it"],
)
def test_somebody_elses_service_is_named(suspended: bool, phase: str, step: Step | None) -> None:
    seen = observed(job(status=recorded("Queued")), jobset=jobset(suspended=suspended), foreign_service="llama-tpujob")
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step) == (phase, step)
    assert condition(status_of(decision), Type.BLOCKED) == ("True", Reason.SERVICE_NAME_TAKEN)
    rests = decide(replace(seen, manifest=job(status=recorded("Queued"), suspend=True)), SETTINGS)
    assert rests.status.phase == ("Suspended" if suspended else "Stopping")


def test_accelerator_s_name_is_explained() -> None:
    decision = decide(observed(job(accelerator="v4-16"), jobset=jobset(suspended=True)), SETTINGS)
    assert "v4-16" in status_of(decision)["acceleratorNote"]
    made = {**status_of(decision), "internal.jobSetUid": None}
    again = decide(observed(job(accelerator="v4:2x2x2", status=made), jobset=jobset(suspended=True)), SETTINGS)
    assert again.status.accelerator_note is None


def test_wait_for_machines_tells_how_many_have_come_and_since_when() -> None:
    hosts = (host(0, ready=False, ip="10.0.0.1"), host(1, ready=False, unschedulable="0/3 nodes fit"))
    first = observed(job(status=recorded("Starting")), jobset=jobset(), hosts=hosts)
    status = status_of(decide(first, SETTINGS))
    end = "1 of 2 hosts have arrived; the others have been awaited since 2030-01-01T12:00:00Z."
    assert status["message"].endswith(end)
    later = replace(first, manifest=job(status=status), now=NOW + timedelta(hours=1))
    assert decide(later, SETTINGS).patch == {}
    unknown = replace(first, manifest=job(status=recorded("WaitingForCapacity")))
    assert status_of(decide(unknown, SETTINGS))["message"].endswith("1 of 2 hosts have arrived.")


def test_what_is_probably_not_meant_is_recorded_with_the_jobset() -> None:
    of_a_laptop = {**TRAINER, "trainer": {**TRAINER["trainer"], "data": {"path": "text/*", "tokenizer": "bytes"}}}
    doubtful = job(**of_a_laptop, status={"warnings": ["of another spec"]})
    seen = observed(doubtful, jobset=jobset(suspended=True))
    (warning,) = status_of(decide(seen, SETTINGS))["warnings"]
    assert warning.startswith('spec.trainer.data.path: "text/*" is relative')
    meant = job(status={"warnings": ["of another spec"]})
    assert "warnings" not in status_of(decide(replace(seen, manifest=meant), SETTINGS))


def test_time_of_a_phase_is_when_it_began() -> None:
    began = format_time(NOW - timedelta(hours=1))
    starting = observed(job(status=recorded("Starting", phaseTime=began)), jobset=jobset(), hosts=(host(0),))
    assert status_of(decide(starting, SETTINGS))["phaseTime"] == began
    running = status_of(decide(replace(starting, hosts=BOTH), SETTINGS))
    assert (running["phase"], running["phaseTime"]) == ("Running", format_time(NOW))


HEALTH = {
    # name: (progress fields, condition, its status and reason, part of its message)
    "saves unknown": ({}, Type.CHECKPOINT_HEALTHY, None, ""),
    "saves succeed": ({"is_checkpoint_healthy": True}, Type.CHECKPOINT_HEALTHY, ("True", Reason.SAVES_SUCCEED), ""),
    "saves fail": (
        {
            "is_checkpoint_healthy": False,
            "checkpoint_failing_since": NOW,
            "checkpoint_message": "503 from gs://b",
            "committed_step": 40,
        },
        Type.CHECKPOINT_HEALTHY,
        ("False", Reason.SAVES_FAIL),
        "since 2030-01-01T12:00:00Z: 503 from gs://b. Training goes on; what is newer than step 40",
    ),
    "saves fail before the first one, for no reason that is known": (
        {"is_checkpoint_healthy": False, "checkpoint_failing_since": NOW},
        Type.CHECKPOINT_HEALTHY,
        ("False", Reason.SAVES_FAIL),
        "no reason was given. Training goes on; what is newer than step 0",
    ),
    "data unknown": ({}, Type.DATA_HEALTHY, None, ""),
    "data flows": ({"is_data_healthy": True}, Type.DATA_HEALTHY, ("True", Reason.DATA_FLOWS), ""),
    "data is slow": (
        {"is_data_healthy": False, "data_wait_fraction": 0.314, "data_message": "hub answers 429"},
        Type.DATA_HEALTHY,
        ("False", Reason.DATA_SLOW),
        "Steps wait for data for 31% of the time: hub answers 429",
    ),
    "data is slow, and nobody knows for how long": (
        {"is_data_healthy": False, "data_message": "429"},
        Type.DATA_HEALTHY,
        ("False", Reason.DATA_SLOW),
        "Steps wait for data: 429",
    ),
}


@pytest.mark.parametrize(("fields", "kind", "expected", "words"), HEALTH.values(), ids=HEALTH.keys())
def test_health_of_parts_is_a_condition(
    fields: dict[str, Any], kind: Type, expected: tuple[str, str] | None, words: str
) -> None:
    progress = Progress(phase="training", **fields)
    seen = observed(job(status=recorded()), jobset=jobset(), hosts=BOTH, progress=progress)
    status = status_of(decide(seen, SETTINGS))
    assert condition(status, kind) == expected
    assert words in next((c["message"] for c in status["conditions"] if c["type"] == kind), "")
    assert status["phase"] == "Running"


def test_seconds_alone_are_not_written() -> None:
    def look(status: dict[str, Any], seconds: int, step: int) -> dict[str, Any]:
        progress = Progress(phase="training", step=step, goodput={"step": seconds}, data_wait_fraction=seconds / 1000)
        now = NOW + timedelta(seconds=seconds)
        seen = observed(job(status=status), jobset=jobset(), hosts=BOTH, progress=progress, now=now)
        return status_of(decide(seen, SETTINGS))

    first = look(recorded(), 100, step=7)
    assert (first["progress.goodput"], first["progress.dataWaitFraction"]) == ({"step": 100}, 0.1)
    assert look(first, 200, step=7) == first
    assert look(first, 200, step=8)["progress.goodput"] == {"step": 200}


def test_what_keeps_pods_from_starting_comes_before_capacity() -> None:
    """More machines would not help a job whose other host cannot pull its image."""
    hosts = (host(0, ready=False, unschedulable="0/3 nodes"), host(1, ready=False, waiting_reason="ImagePullBackOff"))
    seen = observed(job(status=recorded("Starting")), jobset=jobset(), hosts=hosts)
    status = status_of(decide(seen, SETTINGS))
    assert (status["phase"], condition(status, Type.BLOCKED)) == ("Starting", ("True", Reason.CANNOT_START))
