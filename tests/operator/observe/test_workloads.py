"""What a Workload of Kueue's says, and how often it is read."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from tests.operator.building import JOBSET_UID, NOW
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.state import QueuePosition, QueueState
from tpujob_operator.observe.workloads import (
    MOST_READS_PER_SECOND,
    TOO_SHORT,
    WorkloadReader,
    interval_seconds,
    preemptor_uid,
    queue_state,
)
from tpujob_resource.models.times import format_time

LATER = NOW + timedelta(minutes=1)
BIG = "11111111-2222-3333-4444-555555555555"
ROOM = f"Preempted to accommodate a workload (UID: x, JobUID: {BIG}) due to prioritization in the ClusterQueue"


def workload(*conditions: dict[str, Any], active: bool | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "jobset-llama", "namespace": "team", "creationTimestamp": format_time(NOW)},
        "spec": {} if active is None else {"active": active},
        "status": {"conditions": list(conditions), **status},
    }


def said(kind: str, *, status: bool, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "status": str(status), "lastTransitionTime": format_time(LATER), **fields}


PENDING = said("QuotaReserved", status=False, reason="Pending", message="4 more needed")
INADMISSIBLE = said("QuotaReserved", status=False, reason="Inadmissible", message="LocalQueue a doesn't exist")
RESERVED = said("QuotaReserved", status=True, reason="QuotaReserved", message="Quota reserved in ClusterQueue a")
EVICTED = said("Evicted", status=True, reason="Preempted", message=ROOM)
WAS_EVICTED = said("Evicted", status=False, reason="QuotaReserved", message="Previously: …")

WORKLOADS: dict[str, tuple[dict[str, Any], QueueState]] = {
    "new": (workload(), QueueState(since=NOW)),
    "no quota": (workload(PENDING), QueueState(since=NOW, message="4 more needed")),
    "no queue": (
        workload(INADMISSIBLE),
        QueueState(since=NOW, message="LocalQueue a doesn't exist", cannot_be_admitted=True),
    ),
    **{
        reason: (
            workload(said("QuotaReserved", status=False, reason=reason, message="ClusterQueue a is stopped")),
            QueueState(since=NOW, message="ClusterQueue a is stopped", cannot_be_admitted=True),
        )
        for reason in ("Misconfigured", "Suspended")
    },
    "not ready in time": (
        workload(PENDING, said("Evicted", status=True, reason="PodsReadyTimeout", message="Exceeded the timeout")),
        QueueState(since=LATER, message="4 more needed", eviction=f"Exceeded the timeout: {TOO_SHORT}"),
    ),
    "preempted": (
        workload(PENDING, EVICTED),
        QueueState(since=LATER, message="4 more needed", eviction=ROOM, is_preempted=True),
    ),
    "back again": (workload(RESERVED, WAS_EVICTED), QueueState(since=NOW, has_quota=True)),
    "checks": (
        workload(
            RESERVED,
            admissionChecks=[
                {"name": "tpus", "state": "Pending", "message": "ETA in an hour"},
                {"name": "other", "state": "Ready", "message": "done"},
            ],
        ),
        QueueState(since=NOW, has_quota=True, message="tpus: ETA in an hour"),
    ),
    "off": (
        workload(PENDING, active=False),
        QueueState(since=NOW, message="4 more needed", cannot_be_admitted=True, is_deactivated=True),
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_says_what_is_waited_for(name: str) -> None:
    manifest, state = WORKLOADS[name]
    assert queue_state(manifest) == state


def test_who_preempted_is_read_from_a_preemption_alone() -> None:
    assert preemptor_uid(workload(EVICTED)) == BIG
    assert preemptor_uid(workload(WAS_EVICTED)) is None
    assert preemptor_uid(workload(said("Evicted", status=True, reason="Deactivated", message=ROOM))) is None


class Workloads:
    """An API server with Workloads, by the uid of what they were made for."""

    def __init__(self, **found: Any) -> None:
        self.found = found
        self.asked: list[tuple[str | None, str]] = []

    async def list(self, resource: Resource, namespace: str | None, *, labels: str) -> list[dict[str, Any]]:
        job_uid = labels.removeprefix("kueue.x-k8s.io/job-uid=")
        if resource.api_version.endswith("v1beta2"):
            self.asked.append((namespace, job_uid))
        found = self.found.get(job_uid, [])
        if found is None:
            raise errors.NotServed("list workloads", 404, "404 page not found")
        if isinstance(found, errors.ApiError):
            raise found
        return cast("list[dict[str, Any]]", found)

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        name = workload()["metadata"]["name"]
        return {"items": [{"metadata": {"name": name}, "positionInClusterQueue": 2, "positionInLocalQueue": 1}]}


def look(workloads: Workloads, times: int = 1, *, clusterwide: bool = True) -> QueueState | None:
    async def states() -> QueueState | None:
        reader = WorkloadReader(cast("Storage", workloads), clusterwide=clusterwide)
        return [await reader.state(("team", "llama"), JOBSET_UID) for _ in range(times)][-1]

    return asyncio.run(states())


@pytest.mark.parametrize(("clusterwide", "where"), [(True, None), (False, "team")], ids=["all", "one namespace"])
def test_preemptor_is_named_by_what_it_is(*, clusterwide: bool, where: str | None) -> None:
    owner = {"kind": "JobSet", "name": "big", "uid": BIG}
    big = {"metadata": {"namespace": "team-b", "ownerReferences": [owner]}}
    workloads = Workloads(**{JOBSET_UID: [workload(PENDING, EVICTED)], BIG: [big]})
    state = look(workloads, clusterwide=clusterwide)
    assert state is not None
    assert state.preempted_by == "JobSet team-b/big"
    assert workloads.asked == [("team", JOBSET_UID), (where, BIG)]


@pytest.mark.parametrize(
    ("condition", "is_told"),
    [(PENDING, True), (INADMISSIBLE, False), (RESERVED, False)],
    ids=lambda value: value["reason"] if isinstance(value, dict) else "",
)
def test_position_is_told_while_quota_is_waited_for(*, condition: dict[str, Any], is_told: bool) -> None:
    queued = workload(condition) | {"spec": {"queueName": "a"}}
    state = look(Workloads(**{JOBSET_UID: [queued]}))
    assert state is not None
    assert state.position == (QueuePosition(ahead=2, ahead_in_queue=1) if is_told else None)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([], None),
        (None, QueueState(is_installed=False)),
        (errors.Forbidden("list", 403, "no"), None),
        ([workload()], QueueState(since=NOW)),
    ],
    ids=["no Workload", "no Kueue", "no right", "one"],
)
def test_looks_within_seconds_are_one_read(found: Any, state: QueueState | None) -> None:
    workloads = Workloads(**{JOBSET_UID: found})
    assert look(workloads, times=3) == state
    assert len(workloads.asked) == 1


@pytest.mark.parametrize(
    ("jobs", "namespace", "seconds"),
    [
        ({"team": 1}, "team", 30),
        ({"team": 300}, "team", 30),
        ({"team": 5000}, "team", 500),
        ({"team": 5000, "small": 30}, "team", 5000 / 9),
        ({"team": 5000, "small": 30}, "small", 30),
        ({"team": 5000}, "first", 30),
        ({f"team-{number}": 100 for number in range(9)}, "team-0", 90),
    ],
)
def test_jobs_of_one_namespace_do_not_delay_the_reads_of_another(
    jobs: dict[str, int], namespace: str, seconds: float
) -> None:
    read = [(of, f"job-{number}") for of, count in jobs.items() for number in range(count)]
    assert interval_seconds(namespace, read) == pytest.approx(seconds)
    every = sum(count / interval_seconds(of, read) for of, count in jobs.items())
    assert every <= MOST_READS_PER_SECOND + 1e-9
