"""An edited spec of a job at rest makes its JobSet anew: the one explicit way back to life."""

from typing import Any

import pytest

from tests.operator.building import JOBSET_UID, NOW, condition, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.times import format_time
from tpujob_resource.rules.load import load_job

SETTINGS = Settings()


def made_from(**spec: Any) -> str:
    return spec_hash(load_job(job(**spec)))


EDITS = {
    # name: (phase, what it was made from, what the spec is, whether it is made anew)
    "failed, edited": ("Failed", {}, {"args": ["x"]}, True),
    "suspended, edited": ("Suspended", {"suspend": True}, {"args": ["x"], "suspend": True}, True),
    "suspended, edited and resumed": ("Suspended", {"suspend": True}, {"args": ["x"]}, True),
    "failed, edited into nonsense": ("Failed", {}, {"accelerator": "v4-17"}, True),
    "failed, fields that change in place": ("Failed", {}, {"ttlSecondsAfterFinished": 60, "suspend": True}, False),
    "failed, a default written out": ("Failed", {}, {"startupSeconds": 600}, False),
    "succeeded, edited": ("Succeeded", {}, {"args": ["x"]}, False),
    "running, edited by some trick": ("Running", {}, {"args": ["x"]}, False),
}


@pytest.mark.parametrize(("phase", "before", "now", "anew"), EDITS.values(), ids=EDITS.keys())
def test_edit_of_a_job_at_rest_makes_a_new_incarnation(
    phase: str, before: dict[str, Any], now: dict[str, Any], anew: bool
) -> None:
    status = recorded(
        phase,
        specHash=made_from(**before),
        lastCheckpointStep=40,
        charged=2,
        bookedRestarts=2,
        completionTime=format_time(NOW),
        startTime=format_time(NOW),
    )
    seen = observed(job(status=status, generation=2, **now), jobset=jobset(suspended=True))
    decision = decide(seen, SETTINGS)
    if not anew:
        assert status_of(decision)["internal.jobSetUid"] == JOBSET_UID
        return
    assert decision.step is None
    assert status_of(decision) == {
        "phase": "Queued",
        "phaseTime": format_time(NOW),
        "message": "The spec was edited; incarnation 2 of the job starts with it, from its checkpoints.",
        "incarnation": 2,
        "observedGeneration": 2,
        "hosts": 2,
        "lastCheckpointStep": 40,
    }


def test_hash_alone_revives_nothing() -> None:
    """A new release may compute another one of the same spec."""
    status = recorded("Failed", specHash="of-another-release", completionTime=format_time(NOW))
    decision = decide(observed(job(status=status)), SETTINGS)
    assert (status_of(decision), decision.step) == (status, None)


RENEWED = {"phase": "Queued", "message": "edited", "incarnation": 2, "observedGeneration": 2}

NEXT = {
    # name: (observed fields, reason, step)
    "the old JobSet is there": ({"jobset": jobset(suspended=True)}, Reason.REMAKING, Step.DELETE),
    "the old JobSet's pods use their grace": ({"jobset": jobset(being_deleted=True)}, Reason.REMAKING, None),
    "the old JobSet is gone": ({}, Reason.CREATING, Step.CREATE),
    "the new JobSet is there": (
        {"jobset": jobset(uid="new", suspended=True, incarnation=2)},
        Reason.HOSTS_STARTING,
        Step.RESUME,
    ),
}


@pytest.mark.parametrize(
    ("being_deleted", "step"), [(False, Step.DELETE), (True, None)], ids=["found", "being deleted"]
)
def test_jobset_of_a_spec_that_was_edited_before_it_was_recorded_is_made_again(
    being_deleted: bool, step: Step | None
) -> None:
    found = jobset(suspended=True, spec_hash=made_from(args=["before"]), being_deleted=being_deleted)
    decision = decide(observed(job(args=["after"], generation=2), jobset=found), SETTINGS)
    assert (decision.step, decision.status.phase, decision.status.internal.job_set_uid) == (step, "Queued", None)


@pytest.mark.parametrize(("fields", "reason", "step"), NEXT.values(), ids=NEXT.keys())
def test_next_incarnation_comes_after_the_last(fields: dict[str, Any], reason: Reason, step: Step | None) -> None:
    decision = decide(observed(job(status=dict(RENEWED), generation=2, args=["x"]), **fields), SETTINGS)
    assert (decision.status.phase, condition(status_of(decision), Type.RUNNING)) == (
        "Starting" if step is Step.RESUME else "Queued",
        ("False", reason),
    )
    assert decision.step is step
    if step is Step.CREATE:
        assert decision.manifest is not None
        assert decision.manifest["metadata"]["labels"]["tpujob.dev/incarnation"] == "2"
    if fields.get("jobset") and fields["jobset"].uid == "new":
        assert (
            status_of(decision)["internal.jobSetUid"],
            status_of(decision)["incarnation"],
        ) == (
            "new",
            2,
        )
    else:
        assert "internal.jobSetUid" not in status_of(decision)


RESTING = {"phase": "Stopping", "message": "leaving", "incarnation": 2, "observedGeneration": 2}

REST = {
    # name: (observed fields, phase, step)
    "its JobSet is there": ({"jobset": jobset()}, "Stopping", Step.DELETE),
    "its JobSet's pods use their grace": ({"jobset": jobset(being_deleted=True)}, "Stopping", None),
    "a JobSet was made late": ({"jobset": jobset(uid="late", incarnation=2)}, "Stopping", Step.DELETE),
    "its JobSet is gone": ({}, "Suspended", None),
}


@pytest.mark.parametrize(("fields", "phase", "step"), REST.values(), ids=REST.keys())
def test_suspended_job_of_a_queue_has_no_jobset(fields: dict[str, Any], phase: str, step: Step | None) -> None:
    seen = observed(job(status=dict(RESTING), generation=2, queue="team", suspend=True), **fields)
    decision = decide(seen, SETTINGS)
    assert (decision.status.phase, decision.step) == (phase, step)
    assert "internal.jobSetUid" not in status_of(decision)


def test_suspending_a_job_of_a_queue_keeps_what_is_the_job_s() -> None:
    status = recorded(
        startTime=format_time(NOW),
        charged=2,
        crashedAtStep=20,
        lastCheckpointStep=40,
        total=3,
        bookedRestarts=3,
        specHash="hash",
    )
    seen = observed(job(status=status, generation=2, queue="team", suspend=True), jobset=jobset(restarts=3))
    decision = decide(seen, SETTINGS)
    assert (decision.step, decision.requeue_after_seconds) == (None, 0)
    left = {key: value for key, value in status_of(decision).items() if key != "message"}
    assert left == {
        "phase": "Stopping",
        "phaseTime": format_time(NOW),
        "incarnation": 2,
        "observedGeneration": 2,
        "hosts": 2,
        "lastCheckpointStep": 40,
        "startTime": format_time(NOW),
        "restarts.charged": 2,
        "internal.crashedAtStep": 20,
    }


def test_resumed_job_of_a_queue_queues_again() -> None:
    status = {**RESTING, "phase": "Suspended"}
    decision = decide(observed(job(status=status, generation=3, queue="team")), SETTINGS)
    assert (decision.status.phase, decision.step) == ("Queued", Step.CREATE)
    assert decision.manifest is not None
    assert decision.manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_edit_into_nonsense_is_said_and_mended() -> None:
    status = dict(status_of(decide(observed(job(status=dict(RENEWED), generation=2, accelerator="v4-17")), SETTINGS)))
    assert (status["phase"], status["incarnation"]) == ("Invalid", 2)
    decision = decide(observed(job(status=status, generation=3)), SETTINGS)
    assert decision.step is Step.CREATE


RETRIES = {
    # name: (phase, spec.retry, retry in the status, whether it is made anew)
    "failed, raised": ("Failed", 1, None, True),
    "failed, raised again": ("Failed", 3, 1, True),
    "succeeded, raised": ("Succeeded", 1, None, True),
    "failed, as it was from the start": ("Failed", 2, 2, False),
    "failed, lowered": ("Failed", 1, 2, False),
    "failed, not asked for": ("Failed", None, None, False),
    "running": ("Running", 1, None, False),
    "suspended": ("Suspended", 1, None, False),
}


@pytest.mark.parametrize(("phase", "wanted", "known", "anew"), RETRIES.values(), ids=RETRIES.keys())
def test_raised_retry_revives_a_job_that_has_ended(
    phase: str, wanted: int | None, known: int | None, anew: bool
) -> None:
    books = {
        "restarts.charged": 4,
        "internal.bookedRestarts": 4,
        "lastCheckpointStep": 40,
        "completionTime": format_time(NOW),
    }
    status = recorded(phase, **books, **({} if known is None else {"internal.retry": known}))
    seen = observed(job(status=status, retry=wanted, suspend=phase == "Suspended"), jobset=jobset(suspended=True))
    decision = decide(seen, SETTINGS)
    assert status_of(decision).get("incarnation") == (2 if anew else 1)
    if anew:
        assert status_of(decision) == {
            "phase": "Queued",
            "phaseTime": format_time(NOW),
            "message": f"spec.retry is {wanted}; incarnation 2 of the job starts from its last checkpoint.",
            "incarnation": 2,
            "observedGeneration": 1,
            "internal.retry": wanted,
            "hosts": 2,
            "lastCheckpointStep": 40,
        }
    elif phase not in ("Failed", "Succeeded"):
        assert status_of(decision)["internal.retry"] == wanted


def test_retry_revives_once() -> None:
    status = status_of(decide(observed(job(status=recorded("Failed"), retry=1)), SETTINGS))
    again = recorded(**{**status, "phase": "Failed"})
    assert status_of(decide(observed(job(status=again, retry=1)), SETTINGS))["phase"] == "Failed"


@pytest.mark.parametrize(("being_deleted", "step"), [(False, Step.DELETE), (True, None)], ids=["there", "going"])
def test_earlier_jobset_is_deleted_once(being_deleted: bool, step: Step | None) -> None:
    status = {"phase": "Queued", "incarnation": 2, "observedGeneration": 1}
    seen = observed(job(status=status), jobset=jobset(incarnation=1, being_deleted=being_deleted))
    assert decide(seen, Settings()).step is step


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"owner_uid": None}, Reason.NAME_TAKEN),
        ({"owner_uid": None, "being_deleted": True}, Reason.LEFTOVER),
        ({"owner_uid": "old"}, Reason.LEFTOVER),
    ],
    ids=["a person's", "a person's, going", "an earlier job's"],
)
def test_foreign_jobset_of_the_name_is_waited_for(fields: dict[str, Any], reason: Reason) -> None:
    status = status_of(decide(observed(job(), jobset=jobset(**fields)), Settings()))
    assert condition(status, Type.RUNNING) == ("False", reason)


def test_restarts_of_the_earlier_jobset_are_not_counted_again() -> None:
    """Booked into the new incarnation they would hide as many restarts of its own."""
    status = {"phase": "Queued", "incarnation": 2, "observedGeneration": 1}
    before = observed(job(status=status), jobset=jobset(restarts=3, suspended=True, incarnation=1))
    after = decide(before, SETTINGS).status
    assert after.internal.booked_restarts is None
    assert after.restarts.total is None


@pytest.mark.parametrize(("before", "after"), [(None, 2), (1, 2), (4, 5)])
def test_edited_job_says_its_next_incarnation(before: int | None, after: int) -> None:
    status = {**recorded("Failed"), "internal.specHash": "another"}
    status = {key: value for key, value in status.items() if key != "incarnation"} | (
        {"incarnation": before} if before else {}
    )
    decision = decide(observed(job(status=status, generation=2)), Settings())
    assert decision.status.incarnation == after
    assert str(after) in (decision.status.message or "")
