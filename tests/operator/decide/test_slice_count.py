"""A job that may run with fewer slices goes on while machines are missing, and grows when they are back."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import NOW, condition, ended, job, jobset, observed, recorded, status_of
from tests.statuses import flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import recorded_between
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.checks.slice_count import LONGEST_PAUSE_SECONDS, complete_slices, size
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Host, LostNode, Observed, QueueState
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
ELASTIC: dict[str, Any] = {"slices": 4, "minSlices": 2, "checkpointDir": "/checkpoints"}


def at(seconds: float) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def slice_hosts(index: int, **fields: Any) -> tuple[Host, ...]:
    """Both hosts of a slice, ready; keywords replace fields."""
    values: dict[str, Any] = {"slice_index": index, "attempt": 0, "ready": True, "succeeded": False, "ip": "10.0.0.1"}
    return tuple(Host(pod=f"llama-w-{index}-{i}-abcde", host_index=i, **values | fields) for i in range(2))


def slices(*indexes: int, **fields: Any) -> tuple[Host, ...]:
    return tuple(host for index in indexes for host in slice_hosts(index, **fields))


WITHOUT: dict[str, Any] = {"ready": False, "ip": None, "unschedulable": "0/4 nodes are available."}


def waiting(seconds: float = 300, *, arrived: int = 2, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """Slices that have arrived wait for their peers; the others have had no machines for so long."""
    status = recorded("WaitingForCapacity", missingTime=at(-seconds), current=4, hosts=8)
    hosts = slices(*range(arrived), ready=False) + slices(*range(arrived, 4), **WITHOUT)
    values: dict[str, Any] = {"jobset": jobset(slices=4), "hosts": hosts}
    manifest = job(status={**status, **fields.pop("status", {})}, **{**ELASTIC, **(spec or {})})
    return observed(manifest, **values | fields)


def small(*, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """Two of four slices run, and may grow."""
    books = {
        "slices.current": 2,
        "slices.changedTime": at(-900),
        "slices.nextGrowthTime": at(0),
        "incarnation": 2,
        "hosts": 4,
    }
    status = recorded("Running", **{**books, "slices.resizes": 1, **fields.pop("status", {})})
    values: dict[str, Any] = {"jobset": jobset(slices=2, incarnation=2), "hosts": slices(0, 1), "free_slices": 2}
    return observed(job(status=status, **{**ELASTIC, **(spec or {})}), **values | fields)


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        pytest.param(waiting(), 2, id="two have come"),
        pytest.param(waiting(299), None, id="a moment early"),
        pytest.param(waiting(arrived=3), 3, id="three have come"),
        pytest.param(waiting(arrived=1), None, id="fewer than may be"),
        pytest.param(waiting(arrived=1, spec={"minSlices": 1}), 1, id="one may be enough"),
        pytest.param(waiting(20, spec={"shrinkAfterSeconds": 20}), 2, id="a shorter wait"),
        pytest.param(waiting(spec={"minSlices": None}), None, id="not elastic"),
        pytest.param(waiting(spec={"suspend": True}), None, id="to rest"),
        pytest.param(waiting(hosts=slices(0, 1, 2, 3)), None, id="all have come"),
        pytest.param(
            waiting(hosts=slices(0, 1, ready=False) + slice_hosts(2)[:1] + slices(3, **WITHOUT)),
            2,
            id="half a slice counts for nothing",
        ),
        pytest.param(waiting(ended=(ended(0, 1),)), None, id="a crash is not judged"),
        pytest.param(waiting(jobset=jobset(slices=4, restarts=1)), None, id="a restart is not judged"),
        pytest.param(
            waiting(hosts=slices(0, 1, waiting_reason="ImagePullBackOff") + slices(2, 3, **WITHOUT)),
            None,
            id="other machines would not help",
        ),
    ],
)
def test_a_job_goes_on_with_the_slices_that_have_come(seen: Observed, count: int | None) -> None:
    status = decide(seen, SETTINGS).status
    expected = (2, count) if count else (1, 4 if seen.spec.min_slices else seen.status.slices.current)
    assert (status.incarnation, status.slices.current) == expected


TRAINER: dict[str, Any] = {
    "image": None,
    "command": None,
    "trainer": {"model": {"preset": "tiny"}, "data": {"path": "/data"}, "steps": 10, "batchSize": 16},
}


def test_counts_over_which_the_batch_does_not_divide_are_passed_over() -> None:
    assert decide(waiting(arrived=3, spec=TRAINER), SETTINGS).status.slices.current == 2


def test_shrinking_costs_no_restart() -> None:
    books = {
        "restarts.total": 3,
        "restarts.charged": 1,
        "restarts.disruptions": 2,
        "internal.bookedRestarts": 3,
        "lastCheckpointStep": 40,
    }
    hosts = slices(0, 1, ready=False, attempt=3) + slices(2, 3, attempt=3, **WITHOUT)
    decision = decide(waiting(status=books, jobset=jobset(slices=4, restarts=3), hosts=hosts), SETTINGS)

    status = status_of(decision)
    kept = {
        "restarts.total": 3,
        "internal.earlierRestarts": 3,
        "restarts.charged": 1,
        "restarts.disruptions": 2,
        "lastCheckpointStep": 40,
    }
    said = {
        "slices.resizes": 1,
        "internal.resizedAtStep": 40,
        "slices.changedTime": at(0),
        "slices.nextGrowthTime": at(300),
    }
    assert {key: status.get(key) for key in kept | said} == kept | said
    assert not status.keys() & {"internal.jobSetUid", "slices.missingTime", "internal.growthsWithoutProgress"}
    assert decision.note is not None
    assert (decision.note.reason, decision.note.warning) == (Reason.SHRUNK, True)
    assert "for 2 of 4 slices" in decision.note.message
    assert "Incarnation 2 goes on" in decision.note.message

    gone = decide(observed(job(status=status, **ELASTIC), jobset=jobset(slices=4)), SETTINGS)
    assert gone.step is Step.DELETE
    created = decide(observed(job(status=status, **ELASTIC)), SETTINGS)
    assert created.manifest is not None
    assert created.manifest["spec"]["replicatedJobs"][0]["replicas"] == 2
    assert created.manifest["metadata"]["labels"]["tpujob.dev/incarnation"] == "2"


STEPS: dict[str, Any] = {"step": 45, "lastCheckpointStep": 40}


@pytest.mark.parametrize(
    ("seen", "step"), [(waiting(status=STEPS), 40), (small(status=STEPS), 45)], ids=["less", "more"]
)
def test_only_slices_that_are_asked_to_stop_save_their_step(seen: Observed, step: int) -> None:
    status = decide(seen, SETTINGS).status
    assert (status.slices.resizes is not None and status.internal.job_set_uid is None, status.step) == (True, step)


def test_a_smaller_jobset_is_made_from_the_same_spec() -> None:
    """Or the job would be taken to have been edited when it is suspended."""
    whole = decide(observed(job(**ELASTIC)), SETTINGS).manifest
    fewer = decide(observed(job(status={"slices.current": 2, "incarnation": 2}, **ELASTIC)), SETTINGS).manifest
    assert whole is not None
    assert fewer is not None
    assert fewer["metadata"]["annotations"] == whole["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        pytest.param(small(), 4, id="all are free"),
        pytest.param(small(free_slices=1), 3, id="one is free"),
        pytest.param(small(free_slices=1, spec=TRAINER), None, id="one is free and the batch does not divide"),
        pytest.param(small(free_slices=0), None, id="none is free"),
        pytest.param(small(free_slices=9), 4, id="more are free"),
        pytest.param(small(status={"slices.nextGrowthTime": at(1)}), None, id="too early"),
        pytest.param(
            small(hosts=slices(0) + slices(1, ready=False)), None, id="hosts are starting, perhaps on what looks free"
        ),
        pytest.param(small(hosts=slices(0) + slices(1, ready=False, succeeded=True)), None, id="a host has finished"),
        pytest.param(small(ended=(ended(0, 1),)), None, id="a crash is not judged"),
        pytest.param(small(spec={"suspend": True}), None, id="to rest"),
        pytest.param(small(free_slices=0, spec={"growAfterSeconds": 900}), 4, id="tried after a time"),
        pytest.param(small(free_slices=0, spec={"growAfterSeconds": 901}), None, id="not yet tried"),
        pytest.param(
            small(free_slices=0, spec={"growAfterSeconds": 900}, status={"internal.growthsWithoutProgress": 1}),
            None,
            id="tried later after a try that failed",
        ),
        pytest.param(
            small(free_slices=0, spec={"growAfterSeconds": 450}, status={"internal.growthsWithoutProgress": 1}),
            4,
            id="tried again after twice the time",
        ),
        pytest.param(
            small(free_slices=0, spec={"growAfterSeconds": 900}, status={"slices.changedTime": None}),
            None,
            id="nobody knows since when",
        ),
        pytest.param(
            small(free_slices=0, spec={"growAfterSeconds": 2_592_000}, status={"internal.growthsWithoutProgress": 99}),
            None,
            id="after thousands of years",
        ),
        pytest.param(small(status={"slices.nextGrowthTime": None}), 4, id="at any time"),
        pytest.param(small(free_slices=1, spec={"minSlices": None}), None, id="nothing in between is allowed"),
        pytest.param(small(spec={"slices": None, "minSlices": None}), None, id="the spec has no slices any more"),
    ],
)
def test_a_job_grows_when_machines_are_free(seen: Observed, count: int | None) -> None:
    decision = decide(seen, SETTINGS)
    assert (decision.status.incarnation, decision.status.slices.current) == ((3, count) if count else (2, 2))
    if count:
        assert decision.note is not None
        assert (decision.note.reason, decision.note.warning) == (Reason.GROWN, False)
        assert f"incarnation 3 then goes on from that checkpoint with {count} slices" in decision.note.message
        assert (decision.status.phase, decision.status.slices.resizes) == ("Stopping", 2)


def test_growths_that_come_to_nothing_are_further_and_further_apart() -> None:
    """Without a newer checkpoint in between, each growth doubles the time until the next one."""
    pauses: list[float] = []
    status: dict[str, Any] = {"lastCheckpointStep": 40, "internal.resizedAtStep": 40}
    for _ in range(9):
        grown = status_of(decide(small(status=status), SETTINGS))
        status = {
            key: grown[key] for key in ("internal.growthsWithoutProgress", "slices.resizes", "internal.resizedAtStep")
        }
        again = decide(waiting(status={**status, "lastCheckpointStep": 40}), SETTINGS).status
        assert again.slices.next_growth_time is not None
        pauses.append((again.slices.next_growth_time - NOW).total_seconds())
        status = {key: flat(again.as_stored())[key] for key in status} | {"lastCheckpointStep": 40}
    assert pauses[:4] == [600, 1200, 2400, 4800]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS

    progress = {**status, "lastCheckpointStep": 50}
    after = decide(waiting(status=progress), SETTINGS).status
    assert after.slices.next_growth_time == NOW + timedelta(seconds=300)
    assert after.internal.growths_without_progress is None


@pytest.mark.parametrize(
    ("books", "failed"),
    [
        ({}, None),
        ({"internal.growthsWithoutProgress": 2}, 2),
        ({"internal.growthsWithoutProgress": 2, "lastCheckpointStep": 1}, None),
        ({"internal.growthsWithoutProgress": 2, "lastCheckpointStep": 40, "internal.resizedAtStep": 40}, 2),
        ({"internal.growthsWithoutProgress": 2, "lastCheckpointStep": 41, "internal.resizedAtStep": 40}, None),
    ],
    ids=["none before", "no checkpoint yet", "the first checkpoint", "no newer one", "a newer one"],
)
def test_a_checkpoint_makes_growths_worth_it(books: dict[str, Any], failed: int | None) -> None:
    after = decide(waiting(status=books), SETTINGS).status
    assert after.internal.growths_without_progress == failed
    assert after.slices.next_growth_time == NOW + timedelta(seconds=300 * 2 ** (failed or 0))


@pytest.mark.parametrize("seen", [waiting, small], ids=["fewer", "more"])
def test_what_is_known_of_nodes_is_kept(seen: Callable[..., Observed]) -> None:
    entries = [{"node": "bad", "failures": 1}]
    before = seen(status={"nodeFailures": entries})
    after = decide(before, SETTINGS).status
    assert (after.incarnation, after.node_failures) == (
        (before.status.incarnation or 1) + 1,
        before.status.node_failures,
    )


def test_the_wait_is_the_least_pause() -> None:
    """Though it is longer than the longest of those that double."""
    spec = {"shrinkAfterSeconds": LONGEST_PAUSE_SECONDS + 1}
    spec["startupSeconds"] = LONGEST_PAUSE_SECONDS + 2
    after = decide(
        waiting(LONGEST_PAUSE_SECONDS + 1, spec=spec, status={"internal.growthsWithoutProgress": 3}), SETTINGS
    )
    assert after.status.slices.next_growth_time == NOW + timedelta(seconds=LONGEST_PAUSE_SECONDS + 1)


@pytest.mark.parametrize(
    ("last", "count"),
    [
        ({"ready": False}, 1),
        ({"ready": False, "ip": "10.0.0.1"}, 2),
        ({"ready": True}, 2),
        ({"ready": False, "succeeded": True}, 2),
        ({"ready": True, "slice_index": 2}, 1),
    ],
    ids=["being made", "has an address", "ready", "has finished", "of another slice"],
)
def test_slices_are_complete_when_every_host_has_a_machine(last: dict[str, Any], count: int) -> None:
    hosts = (*slices(0), slice_hosts(1)[0], replace(slice_hosts(1)[1], **{"ip": None, **last}))
    assert complete_slices(observed(job(), hosts=hosts), jobset(slices=2)) == count


def test_an_earlier_jobset_says_nothing_of_slices() -> None:
    seen = waiting(status={"slices.current": 3, "slices.missingTime": at(-10), "incarnation": 2})
    for made in (seen.jobset, None):
        assert size(replace(seen, jobset=made), Phase.RUNNING) == {}
    assert size(replace(seen, jobset=jobset(slices=3, incarnation=2)), Phase.RUNNING) == {
        "slices.current": 3,
        "slices.missing_time": None,
    }


def test_slices_of_a_job_that_may_have_fewer_are_said_at_once() -> None:
    seen = waiting(0, status={"slices.current": None, "slices.missingTime": None})
    assert decide(seen, SETTINGS).status.slices.current == 4
    later = waiting(10, status={"slices.current": None})
    assert decide(later, SETTINGS).status.slices.missing_time == NOW - timedelta(seconds=10)


def test_status_says_since_when_machines_are_missing() -> None:
    seen = waiting(status={"slices.missingTime": None, "phase": "Running"})
    first = decide(seen, SETTINGS).status
    assert first.slices.missing_time == NOW
    # Hosts that wait for missing ones end after startupSeconds: a restart does not start the wait anew.
    restarting = replace(seen, hosts=slices(0, 1, ready=False), now=NOW + timedelta(seconds=30))
    manifest = {**seen.manifest, "status": first.as_stored()}
    second = decide(replace(restarting, manifest=manifest), SETTINGS).status
    assert second.slices.missing_time == NOW
    running = replace(restarting, manifest={**manifest, "status": second.as_stored()}, hosts=slices(0, 1, 2, 3))
    assert decide(running, SETTINGS).status.slices.missing_time is None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (small(free_slices=0), ("False", Reason.SLICES_MISSING)),
        (small(jobset=jobset(slices=4, incarnation=2), hosts=slices(0, 1, 2, 3)), ("True", Reason.ALL_SLICES)),
        (waiting(0), ("True", Reason.ALL_SLICES)),
    ],
    ids=["fewer", "all", "all are asked for"],
)
def test_a_condition_tells_whether_slices_are_missing(seen: Observed, expected: tuple[str, str]) -> None:
    assert condition(status_of(decide(seen, SETTINGS)), Type.FULL_SIZE) == expected


def test_a_job_with_all_its_slices_says_nothing_of_them() -> None:
    never = {"slices.current": None, "slices.missingTime": None}
    status = status_of(decide(waiting(spec={"minSlices": None}, status=never), SETTINGS))
    assert not status.keys() & {"slices.current", "slices.missingTime"}
    assert condition(status, Type.FULL_SIZE) is None


@pytest.mark.parametrize("change", [{"internal.retry": 1}, {"args": ["x"]}], ids=["internal.retry", "edit"])
def test_retry_and_edit_start_with_all_slices(change: dict[str, Any]) -> None:
    status = recorded("Failed", specHash="another", current=2, resizes=1, nextGrowthTime=at(0))
    after = status_of(decide(observed(job(status=status, generation=2, **ELASTIC, **change)), SETTINGS))
    assert not after.keys() & {"slices.current", "slices.resizes", "slices.nextGrowthTime"}


def queued(seconds: float = 300, *, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """Kueue has not admitted four slices for so long."""
    status = recorded("Queued", missingTime=at(-seconds), current=4, hosts=8)
    status |= fields.pop("status", {})
    state = QueueState(message="insufficient unused quota for google.com/tpu in flavor v6e, 16 more needed")
    values: dict[str, Any] = {"jobset": jobset(slices=4, suspended=True), "queue": state}
    return observed(job(status=status, **{**ELASTIC, "queue": "team", **(spec or {})}), **values | fields)


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        pytest.param(queued(), 3, id="one less"),
        pytest.param(queued(299), None, id="a moment early"),
        pytest.param(queued(20, spec={"shrinkAfterSeconds": 20}), 3, id="a shorter wait"),
        pytest.param(queued(spec=TRAINER), 2, id="the batch divides over two"),
        pytest.param(queued(queue=None), 3, id="nobody knows why it waits"),
        pytest.param(queued(jobset=jobset(slices=2, suspended=True)), None, id="it waits with the fewest"),
        pytest.param(queued(pods_left=1), None, id="it is being taken back"),
        pytest.param(queued(jobset=jobset(slices=4)), None, id="it is admitted"),
        pytest.param(
            queued(queue=QueueState(cannot_be_admitted=True, message="LocalQueue team doesn't exist")),
            None,
            id="there is no such queue",
        ),
        pytest.param(queued(queue=QueueState(is_installed=False)), None, id="there is no Kueue"),
        pytest.param(queued(queue=QueueState()), None, id="Kueue has not looked at it"),
        pytest.param(queued(queue=QueueState(has_quota=True)), 3, id="a check of its admission is not passed"),
        pytest.param(queued(spec={"suspend": True}), None, id="to rest"),
        pytest.param(queued(spec={"minSlices": None}), None, id="not elastic"),
        pytest.param(queued(status={"phase": "Starting"}), None, id="it was not waiting a moment ago"),
        pytest.param(queued(jobset=jobset(slices=4, suspended=True, restarts=1)), None, id="a restart is not judged"),
    ],
)
def test_a_job_waits_in_its_queue_with_fewer_slices(seen: Observed, count: int | None) -> None:
    decision = decide(seen, SETTINGS)
    if count is None:
        assert Reason.QUEUED_SMALLER not in str(decision.note)
        assert (decision.status.slices.resizes, decision.status.slices.missing_time is None) != (1, True)
        return
    assert (decision.status.incarnation, decision.status.slices.current, decision.status.phase) == (2, count, "Queued")
    assert decision.note is not None
    assert (decision.note.reason, decision.note.warning) == (Reason.QUEUED_SMALLER, False)
    assert f"Queue team has not admitted 4 slices since {at(0)[:10]}" in decision.note.message
    assert f"Incarnation 2 waits there with {count} (spec.minSlices 2)" in decision.note.message
    assert decision.status.slices.missing_time is None
    assert not decision.status.restarts.total


@pytest.mark.parametrize(
    ("before", "phase", "since"),
    [
        ("Queued", Phase.QUEUED, -100),
        ("Starting", Phase.QUEUED, 0),
        ("WaitingForCapacity", Phase.QUEUED, 0),
        ("Queued", Phase.STARTING, None),
        ("Queued", Phase.WAITING_FOR_CAPACITY, 0),
        ("WaitingForCapacity", Phase.WAITING_FOR_CAPACITY, -100),
        ("Starting", Phase.STARTING, -100),
        ("Running", Phase.RUNNING, None),
    ],
)
def test_the_wait_for_a_queue_and_that_for_machines_are_two(before: str, phase: Phase, since: float | None) -> None:
    seen = queued(status={"phase": before, "slices.missingTime": at(-100)})
    found = size(seen, phase)["slices.missing_time"]
    assert found == (None if since is None else NOW + timedelta(seconds=since))


def test_a_job_grows_when_its_queue_has_quota() -> None:
    decision = decide(small(spec={"queue": "team"}, free_slices=1), SETTINGS)
    assert decision.note is not None
    assert (decision.status.slices.current, decision.note.reason) == (3, Reason.GROWN)
    assert "Places in the queue for 1 more slices are free." in decision.note.message


GONE = ended(1, 143, slice_index=2, was_asked=True, asked_at=NOW)


@pytest.mark.parametrize(
    ("in_place", "lost", "expected"),
    [
        (3, {"ended": (GONE,)}, 1),
        (3, {"lost_nodes": (LostNode(attempt=0, name="n", trouble="is gone"),)}, 1),
        (3, {}, 0),
        (0, {"ended": (GONE,)}, 0),
    ],
    ids=["a pod", "a node", "nothing", "JobSet counts it"],
)
def test_what_no_pod_took_the_place_of_is_one_disruption(in_place: int, lost: dict[str, Any], expected: int) -> None:
    """The others wait for it in their pods, until these are made anew with fewer slices."""
    before = {"restarts.total": 4, "restarts.inPlace": 1, "restarts.disruptions": 2}
    seen = waiting(spec={"inPlaceRestarts": in_place}, status=before, **lost)

    status = decide(seen, SETTINGS).status

    assert (status.slices.current, status.incarnation) == (2, 2)
    assert (status.restarts.total, status.restarts.in_place, status.restarts.disruptions) == (
        4 + expected,
        1,
        2 + expected,
    )
    assert status.internal.earlier_restarts == 3 + expected
    assert recorded_between(seen.status, status) == Counter({Cause.DISRUPTION: expected})
    assert (status.internal.restarts_without_progress or 0) == expected
