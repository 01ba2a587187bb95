"""Hosts that end because machines for their peers did not come: no crash of the job's, and put off like any restart."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import NOW, ended, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import recorded_between
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Ended, Host, Observed
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False, restart_pause_seconds=10)
SCHEDULER = "0/5 nodes are available: 5 Insufficient google.com/tpu."
HERE: dict[str, Any] = {"ready": False, "ip": "10.0.0.1"}
MISSING: dict[str, Any] = {"ready": False, "unschedulable": SCHEDULER}
GAVE_UP = (ended(0, 80, after=600), ended(1, 80, after=600))


def two_slices(*, attempt: int = 0, first: dict[str, Any] = HERE, second: dict[str, Any] = MISSING) -> tuple[Host, ...]:
    """Two slices of two hosts."""
    given = {0: {"succeeded": False, **first}, 1: {"succeeded": False, **second}}
    return tuple(
        Host(pod=f"llama-w-{s}-{i}-abcde", slice_index=s, host_index=i, attempt=attempt, **given[s])
        for s in (0, 1)
        for i in (0, 1)
    )


def seen(status: dict[str, Any], *, at: float = 0, restarts: int = 0, **fields: Any) -> Observed:
    manifest = job(status=status, slices=2, accelerator="cpu:2x1")
    state = jobset(restarts=restarts, slices=2, **fields.pop("jobset", {}))
    return observed(manifest, jobset=state, now=NOW + timedelta(seconds=at), **fields)


def after(first: Observed, *, at: float, restarts: int = 0, **fields: Any) -> Observed:
    """The next look, at a job that has the status that the first one made."""
    return seen(status_of(decide(first, SETTINGS)), at=at, restarts=restarts, **fields)


def waiting() -> Observed:
    return seen(recorded("Starting", hosts=4), hosts=two_slices())


def given_up(*ends: Ended) -> Observed:
    """JobSet has restarted, and the evidence of pods without machines is gone with the pods."""
    looked = after(waiting(), at=600, hosts=two_slices()[2:], ended=ends or GAVE_UP)
    return after(looked, at=602, restarts=1, hosts=two_slices(attempt=1), ended=ends or GAVE_UP)


def test_hosts_without_a_machine_are_kept_in_status() -> None:
    found = decide(waiting(), SETTINGS).status.internal.unschedulable
    assert found is not None
    assert (found.attempt, found.since, found.message) == (0, NOW, SCHEDULER)
    assert found.hosts == "slice 1 host 0 (pod llama-w-1-0-abcde) and 1 more"


@pytest.mark.parametrize(
    ("look", "is_kept"),
    [
        ({"hosts": two_slices(second=HERE)}, False),
        ({"hosts": two_slices(first={"ready": True}, second={"ready": True})}, False),
        ({"hosts": two_slices(second=HERE)[:3]}, True),
        ({"hosts": two_slices()[2:], "ended": GAVE_UP}, True),
        ({"hosts": (), "ended": GAVE_UP}, True),
        ({"hosts": (), "jobset": {"suspended": True}}, True),
    ],
    ids=["all have come", "all run", "one pod is not made yet", "they gave up", "pods are gone", "the pause"],
)
def test_machines_that_came_are_no_evidence(look: dict[str, Any], is_kept: bool) -> None:
    found = decide(after(waiting(), at=30, **look), SETTINGS).status.internal.unschedulable
    assert (found is not None) == is_kept
    if found is not None:
        assert found.since == NOW


def test_other_words_of_the_scheduler_are_no_news() -> None:
    later = after(waiting(), at=30, hosts=two_slices(second={**MISSING, "unschedulable": "0/6 nodes are available."}))
    assert decide(later, SETTINGS).status.internal.unschedulable == later.status.internal.unschedulable


def test_hosts_that_waited_are_no_crash() -> None:
    status = decide(given_up(), SETTINGS).status
    assert (status.restarts.charged, status.restarts.capacity, status.internal.booked_restarts) == (None, 1, 1)
    assert status.node_failures is None
    before = given_up().status
    assert recorded_between(before, status) == {Cause.CAPACITY: 1, Cause.CRASH: 0, **dict.fromkeys(_OTHERS, 0)}


_OTHERS = (Cause.DISRUPTION, Cause.UNEXPLAINED, Cause.SUSPENSION)


def test_the_next_attempt_is_evidence_of_its_own() -> None:
    """The record of the last one is judged in the look that replaces it."""
    found = decide(given_up(), SETTINGS).status.internal.unschedulable
    assert found is not None
    assert (found.attempt, found.since) == (1, NOW + timedelta(seconds=602))


def test_pods_seen_before_the_restart_replace_nothing() -> None:
    early = after(waiting(), at=601, hosts=two_slices(attempt=1), ended=GAVE_UP)
    found = decide(early, SETTINGS).status.internal.unschedulable
    assert found is not None
    assert found.attempt == 0


@pytest.mark.parametrize(
    ("ends", "crashes"),
    [
        ((ended(0, 80, after=600), ended(1, 1, after=601)), None),
        ((ended(0, 1, after=600), ended(1, 80, after=600)), None),
        ((ended(0, 139, after=20), ended(1, 80, after=600)), 1),
        ((ended(0, 1, after=20),), 1),
        ((ended(0, 79, after=600),), 1),
    ],
    ids=["one follows", "in the same second", "a crash before", "a crash", "a stall"],
)
def test_only_waiting_is_explained(ends: tuple[Ended, ...], crashes: int | None) -> None:
    status = decide(given_up(*ends), SETTINGS).status
    assert (status.restarts.charged, status.restarts.capacity) == (crashes, None if crashes else 1)


def test_peers_that_had_machines_are_a_crash() -> None:
    come = after(waiting(), at=30, hosts=two_slices(second=HERE))
    gave_up = after(come, at=600, hosts=two_slices(second=HERE)[2:], ended=GAVE_UP)
    status = decide(after(gave_up, at=602, restarts=1, hosts=two_slices(attempt=1), ended=GAVE_UP), SETTINGS).status
    assert (status.restarts.charged, status.restarts.capacity) == (1, None)


def test_a_machine_that_was_lost_comes_first() -> None:
    evicted = ended(0, 75, after=599, was_asked=True, asked_at=NOW + timedelta(seconds=590), is_disrupted=True)
    status = decide(given_up(evicted, GAVE_UP[1]), SETTINGS).status
    assert (status.restarts.disruptions, status.restarts.capacity, status.restarts.charged) == (1, None, None)


def test_many_attempts_never_fail_the_job() -> None:
    """Each is put off for longer, up to five minutes, and the message says what is missing."""
    books = {
        "internal.bookedRestarts": 12,
        "restarts.total": 12,
        "restarts.capacity": 12,
        "internal.restartsWithoutProgress": 12,
        "hosts": 4,
    }
    record = {"attempt": 12, "hosts": "slice 1 host 0", "since": format_time(NOW), "message": SCHEDULER}
    status = recorded("WaitingForCapacity", **books, unschedulable=record, restartedAtStep=0)
    ends = tuple(replace(end, attempt=12) for end in GAVE_UP)
    last = seen(status, at=602, restarts=13, hosts=two_slices(attempt=13), ended=ends)
    decision = decide(last, SETTINGS)
    assert (decision.status.phase, decision.step) == ("Restarting", Step.SUSPEND)
    assert decision.status.restarts.next_time == NOW + timedelta(seconds=902)
    message = decision.status.message or ""
    assert message.startswith("13 restarts in a row without a newer checkpoint")
    assert f"No machine for slice 1 host 0 since {format_time(NOW)}: {SCHEDULER}" in message
    assert "spec.startupSeconds (600 s)" in message
