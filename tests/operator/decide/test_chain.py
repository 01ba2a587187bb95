"""The chain of verdicts as tables: what was seen, and what must follow."""

from datetime import timedelta

import pytest

from tests.operator.building import (
    BOTH,
    JOBSET_UID,
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
from tests.statuses import PATHS, grouped
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

SETTINGS = Settings()
CRASHES = tuple(ended(0, 1, attempt=attempt) for attempt in range(4))
COMPLETED = {"outcome": "Completed", "outcome_at": NOW - timedelta(seconds=3)}
FAILED = {"outcome": "Failed", "outcome_reason": "FailedJobs", "outcome_message": "first failed job: llama-w-0"}

CASES = {
    # name: (seen, phase, reason, step)
    "new, refused before": (
        observed(job(), jobset_refusal="exceeded quota"),
        "Queued",
        Reason.JOBSET_REFUSED,
        Step.CREATE,
    ),
    "JobSet is not installed": (
        observed(job(), serves_jobsets=False),
        "Queued",
        Reason.JOBSET_NOT_INSTALLED,
        None,
    ),
    "impossible, and JobSet is not installed": (
        observed(job(accelerator="v4-17"), serves_jobsets=False),
        "Invalid",
        Reason.REJECTED,
        None,
    ),
    "impossible": (observed(job(accelerator="v4-17")), "Invalid", Reason.REJECTED, None),
    "impossible, made possible": (
        observed(job(status={"phase": "Invalid", "message": "x"}, generation=2)),
        "Queued",
        Reason.CREATING,
        Step.CREATE,
    ),
    "impossible by now, but it runs": (
        observed(job(accelerator="v4-17", status=recorded()), jobset=jobset(), hosts=BOTH),
        "Running",
        Reason.ALL_HOSTS_READY,
        None,
    ),
    "created, not recorded": (
        observed(job(), jobset=jobset(suspended=True)),
        "Starting",
        Reason.HOSTS_STARTING,
        Step.RESUME,
    ),
    "created, not recorded, to rest": (
        observed(job(suspend=True), jobset=jobset(suspended=True)),
        "Suspended",
        Reason.SUSPENDED,
        None,
    ),
    "created, not recorded, deleted by somebody": (
        observed(job(), jobset=jobset(suspended=True, being_deleted=True)),
        "Queued",
        Reason.CREATING,
        None,
    ),
    "name taken": (observed(job(), jobset=jobset(owner_uid=None)), "Queued", Reason.NAME_TAKEN, None),
    "earlier job's JobSet": (observed(job(), jobset=jobset(owner_uid="old")), "Queued", Reason.LEFTOVER, None),
    "recorded": (
        observed(job(status=recorded("Queued")), jobset=jobset(suspended=True)),
        "Starting",
        Reason.HOSTS_STARTING,
        Step.RESUME,
    ),
    "recorded, to be suspended": (
        observed(job(status=recorded("Queued"), suspend=True), jobset=jobset(suspended=True)),
        "Suspended",
        Reason.SUSPENDED,
        None,
    ),
    "running, to be suspended": (
        observed(job(status=recorded(), suspend=True), jobset=jobset(), hosts=BOTH, pods_left=2),
        "Stopping",
        Reason.STOPPING,
        Step.SUSPEND,
    ),
    "suspended, pods use their grace": (
        observed(job(status=recorded("Stopping"), suspend=True), jobset=jobset(suspended=True), pods_left=1),
        "Stopping",
        Reason.STOPPING,
        None,
    ),
    "suspended, pods gone": (
        observed(job(status=recorded("Stopping"), suspend=True), jobset=jobset(suspended=True)),
        "Suspended",
        Reason.SUSPENDED,
        None,
    ),
    "suspended, resumed while pods use their grace": (
        observed(
            job(status=recorded("Stopping", phaseTime=format_time(NOW - timedelta(seconds=20)))),
            jobset=jobset(suspended=True),
            pods_left=1,
        ),
        "Stopping",
        Reason.STOPPING,
        None,
    ),
    "suspended, resumed while a pod is left on a lost node": (
        observed(
            job(status=recorded("Stopping", phaseTime=format_time(NOW - timedelta(seconds=100)))),
            jobset=jobset(suspended=True),
            pods_left=1,
        ),
        "Starting",
        Reason.HOSTS_STARTING,
        Step.RESUME,
    ),
    "in a queue": (
        observed(job(status=recorded("Queued"), queue="team-a"), jobset=jobset(suspended=True)),
        "Queued",
        Reason.IN_QUEUE,
        None,
    ),
    "taken back by the queue": (
        observed(job(status=recorded(), queue="team-a"), jobset=jobset(suspended=True), pods_left=2),
        "Stopping",
        Reason.TAKEN_BACK,
        None,
    ),
    "new, for a queue, to be suspended": (
        observed(job(queue="team-a", suspend=True)),
        "Suspended",
        Reason.SUSPENDED,
        None,
    ),
    "no pods yet": (observed(job(status=recorded()), jobset=jobset()), "Starting", Reason.HOSTS_STARTING, None),
    "one of two ready": (
        observed(job(status=recorded()), jobset=jobset(), hosts=(host(0), host(1, ready=False))),
        "Starting",
        Reason.HOSTS_STARTING,
        None,
    ),
    "all ready": (
        observed(job(status=recorded()), jobset=jobset(), hosts=BOTH),
        "Running",
        Reason.ALL_HOSTS_READY,
        None,
    ),
    "one finished": (
        observed(job(status=recorded()), jobset=jobset(), hosts=(host(0), host(1, ready=False, succeeded=True))),
        "Running",
        Reason.ALL_HOSTS_READY,
        None,
    ),
    "completed": (
        observed(job(status=recorded()), jobset=jobset(**COMPLETED)),
        "Succeeded",
        Reason.FINISHED,
        None,
    ),
    "completed, being deleted": (
        observed(job(status=recorded()), jobset=jobset(**COMPLETED, being_deleted=True)),
        "Succeeded",
        Reason.FINISHED,
        None,
    ),
    "failed, nothing seen": (
        observed(job(status=recorded()), jobset=jobset(**FAILED)),
        "Failed",
        Reason.JOBSET_FAILED,
        None,
    ),
    "failed, host seen": (
        observed(job(status=recorded()), jobset=jobset(**FAILED), ended=(ended(1, 77),)),
        "Failed",
        Reason.HOST_FAILED,
        None,
    ),
    "crashed as often as is allowed": (
        observed(job(status=recorded()), jobset=jobset(restarts=3), ended=CRASHES[:3], hosts=BOTH),
        "Running",
        Reason.ALL_HOSTS_READY,
        None,
    ),
    "crashed once more": (
        observed(job(status=recorded()), jobset=jobset(restarts=4), ended=CRASHES, hosts=BOTH),
        "Failed",
        Reason.CRASHED_TOO_OFTEN,
        Step.SUSPEND,
    ),
    "crashed once more, in a queue": (
        observed(job(status=recorded(), queue="team-a"), jobset=jobset(restarts=4), ended=CRASHES, hosts=BOTH),
        "Failed",
        Reason.CRASHED_TOO_OFTEN,
        Step.DELETE,
    ),
    "no crash is allowed": (
        observed(job(status=recorded(), restarts={"crashes": 0}), jobset=jobset(restarts=1), ended=CRASHES, hosts=BOTH),
        "Failed",
        Reason.CRASHED_TOO_OFTEN,
        Step.SUSPEND,
    ),
    "restarted for free": (
        observed(job(status=recorded()), jobset=jobset(restarts=40), hosts=BOTH),
        "Running",
        Reason.ALL_HOSTS_READY,
        None,
    ),
    "deleted by somebody": (observed(job(status=recorded())), "Failed", Reason.JOBSET_DELETED, None),
    "being deleted by somebody": (
        observed(job(status=recorded()), jobset=jobset(being_deleted=True), hosts=BOTH),
        "Failed",
        Reason.JOBSET_DELETED,
        None,
    ),
    "late create": (
        observed(job(status=recorded()), jobset=jobset(uid="late", suspended=True)),
        "Failed",
        Reason.JOBSET_DELETED,
        Step.DELETE,
    ),
    "deleted, name taken": (
        observed(job(status=recorded()), jobset=jobset(uid="other", owner_uid="other")),
        "Failed",
        Reason.JOBSET_DELETED,
        None,
    ),
}


def test_new_job_gets_its_jobset_before_a_status() -> None:
    decision = decide(observed(job()), SETTINGS)
    assert decision.step is Step.CREATE
    assert decision.patch == {}


@pytest.mark.parametrize(("seen", "phase", "reason", "step"), CASES.values(), ids=CASES.keys())
def test_what_follows_from_what_was_seen(seen: Observed, phase: str, reason: Reason, step: Step | None) -> None:
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step) == (phase, step)
    found = {c["reason"] for c in status_of(decision)["conditions"]}
    assert str(reason) in found


@pytest.mark.parametrize("seen", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_status_fits_the_resource(seen: Observed) -> None:
    status = status_of(decide(seen, SETTINGS))
    assert set(status) <= {field.alias or name for name, field in Status.model_fields.items()} | {*PATHS.values()}
    Status.model_validate(status)


@pytest.mark.parametrize("seen", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_second_look_changes_nothing(seen: Observed) -> None:
    """At rest nothing is written: the status that was written is the status that is wanted a minute later."""
    status = status_of(decide(seen, SETTINGS))
    later = Observed(
        manifest={**seen.manifest, "status": grouped(status)},
        jobset=seen.jobset,
        hosts=seen.hosts,
        ended=seen.ended,
        jobset_refusal=seen.jobset_refusal,
        serves_jobsets=seen.serves_jobsets,
        pods_left=seen.pods_left,
        now=seen.now + timedelta(minutes=1),
    )
    if status.get("internal.jobSetUid") is None or seen.status.internal.job_set_uid is not None:
        decision = decide(later, SETTINGS)
        assert decision.patch == {}
        assert decision.note is None


OVER = {
    "succeeded": ("Succeeded", {}, None),
    "failed": ("Failed", {}, None),
    "JobSet there": ("Succeeded", {"jobset": jobset(**COMPLETED)}, None),
    "JobSet still runs": ("Failed", {"jobset": jobset(), "hosts": BOTH}, Step.SUSPEND),
    "late create": ("Succeeded", {"jobset": jobset(uid="late", suspended=True)}, Step.DELETE),
    "somebody else's JobSet": ("Succeeded", {"jobset": jobset(uid="other", owner_uid="other")}, None),
}


@pytest.mark.parametrize(("phase", "fields", "step"), OVER.values(), ids=OVER.keys())
def test_terminal_is_terminal(phase: str, fields: dict, step: Step | None) -> None:
    status = recorded(phase, completionTime=format_time(NOW))
    decision = decide(observed(job(status=status), **fields), SETTINGS)
    assert (status_of(decision), decision.step, decision.note) == (status, step, None)


def test_terminal_job_notices_a_new_generation_only() -> None:
    status = recorded("Failed", completionTime=format_time(NOW))
    decision = decide(observed(job(status=status, generation=2, accelerator="cpu:4x1")), SETTINGS)
    assert decision.patch == {"observedGeneration": 2}
    assert decision.step is None


@pytest.mark.parametrize(
    ("age", "step", "again"),
    [(0, None, 60), (59, None, 1), (60, Step.DELETE, None), (3600, Step.DELETE, None)],
)
def test_time_to_live_counts_from_the_end(age: float, step: Step | None, again: float | None) -> None:
    status = recorded("Succeeded", completionTime=format_time(NOW - timedelta(seconds=age)))
    seen = observed(job(status=status, ttlSecondsAfterFinished=60), jobset=jobset(**COMPLETED))
    decision = decide(seen, SETTINGS)
    assert (decision.step, decision.requeue_after_seconds) == (step, again)


def test_created_jobset_is_inert() -> None:
    """Suspended, and without a ttl of its own: it can neither run nor vanish before it is recorded."""
    manifest = decide(observed(job(ttlSecondsAfterFinished=5)), SETTINGS).manifest
    assert manifest is not None
    assert manifest["spec"]["suspend"] is True
    assert "ttlSecondsAfterFinished" not in manifest["spec"]
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (observed(job()).uid, True)


def test_recording_takes_uid_of_the_live_jobset() -> None:
    status = status_of(decide(observed(job(), jobset=jobset(suspended=True)), SETTINGS))
    assert (status["jobSet"], status["internal.jobSetUid"], status["incarnation"]) == ("llama", JOBSET_UID, 1)


def test_nothing_is_recorded_while_the_jobset_is_deleted() -> None:
    status = status_of(decide(observed(job(), jobset=jobset(suspended=True, being_deleted=True)), SETTINGS))
    assert "internal.jobSetUid" not in status


def test_invalid_names_every_problem_once() -> None:
    decision = decide(observed(job(accelerator="v4-17", slices=2, workers=3)), SETTINGS)
    assert condition(status_of(decision), Type.VALID) == ("False", "Rejected")
    assert status_of(decision)["message"].count("spec.accelerator") == 1
    assert "spec.workers" in status_of(decision)["message"]
    assert decision.requeue_after_seconds is None
    assert decision.note is not None


def test_hindrance_goes_when_it_is_over() -> None:
    blocked = {"type": "Blocked", "status": "True", "reason": "CannotStart", "lastTransitionTime": format_time(NOW)}
    seen = observed(job(status=recorded("Starting", conditions=[blocked])), jobset=jobset(), hosts=BOTH)
    assert condition(status_of(decide(seen, SETTINGS)), Type.BLOCKED) == ("False", "Unblocked")


def test_transition_time_moves_with_the_status_only() -> None:
    status = dict(status_of(decide(observed(job(status=recorded()), jobset=jobset(), hosts=BOTH), SETTINGS)))
    later = NOW + timedelta(minutes=5)
    seen = Observed(manifest=job(status=status), jobset=jobset(), hosts=(host(0),), now=later)
    first, second = (
        next(c for c in found["conditions"] if c["type"] == Type.RUNNING)
        for found in (status, status_of(decide(seen, SETTINGS)))
    )
    assert (first["status"], second["status"]) == ("True", "False")
    assert (first["lastTransitionTime"], second["lastTransitionTime"]) == (format_time(NOW), format_time(later))


def test_unknown_status_fields_are_kept() -> None:
    seen = observed(job(status=recorded(fromTheFuture={"a": 1})), jobset=jobset(), hosts=BOTH)
    assert status_of(decide(seen, SETTINGS))["fromTheFuture"] == {"a": 1}


def test_recorded_fatal_end_fails_the_job_after_a_restart_of_the_operator() -> None:
    """The pods are gone, and so is what the operator had in memory: the status alone tells."""
    before = decide(observed(job(status=recorded()), jobset=jobset(), hosts=BOTH, ended=(ended(1, 78),)), Settings())
    assert before.status.failure is not None
    assert before.status.failure.exit_code == 78
    after = decide(observed(job(status=status_of(before)), jobset=jobset(outcome="Failed")), Settings())
    assert (after.status.phase, after.status.failure) == ("Failed", before.status.failure)


def test_recorded_fatal_end_ends_a_jobset_that_goes_on() -> None:
    """JobSet looked at another pod first and restarts; the pod with the fatal code is gone."""
    failure = {"pod": "llama-w-0-1-abcde", "host": "slice 0 host 1", "exitCode": 78, "attempt": 0, "message": ""}
    seen = observed(job(status=recorded(failure=failure)), jobset=jobset(restarts=1), hosts=BOTH)
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step) == ("Failed", Step.SUSPEND)
