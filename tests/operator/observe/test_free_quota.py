"""For how many more slices a queue has quota: as Kueue counts what its ClusterQueue has reserved."""

import asyncio
import logging
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.operator.building import job
from tests.operator.building import jobset as running
from tests.operator.observe.test_free_slices import KEY, TPU, jobset
from tpujob_operator.base.settings import Settings
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBSETS, WORKLOADS, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.free_quota import FreeQuotaReader, slices_within_quota
from tpujob_operator.observe.free_slices import need_of
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.state import Host
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.models.stored import StoredJob

type Object = dict[str, Any]

ADMISSION: Object = {"clusterQueue": "all", "podSetAssignments": [{"name": "w", "flavors": {TPU: "v5e"}}]}


def cluster_queue(
    *, nominal: str | int = 64, reserved: str | int = 32, pending: int = 0, **more: tuple[str | int, str | int]
) -> Object:
    """One with a quota of chips, half of it in use; keywords: other resources, as quota and what is reserved."""
    amounts = {TPU: (nominal, reserved), **more}
    quotas = [{"name": name, "nominalQuota": quota} for name, (quota, _) in amounts.items()]
    used = [{"name": name, "total": total} for name, (_, total) in amounts.items()]
    other = {"name": "v6e", "resources": [{"name": TPU, "nominalQuota": 999}]}
    return {
        "spec": {"resourceGroups": [{"flavors": [{"name": "v5e", "resources": quotas}, other]}]},
        "status": {"pendingWorkloads": pending, "flavorsReservation": [{"name": "v5e", "resources": used}]},
    }


@pytest.mark.parametrize(
    ("queue", "flavors", "count"),
    [
        pytest.param(cluster_queue(), {TPU: "v5e"}, 2, id="two fit"),
        pytest.param(cluster_queue(reserved=49), {TPU: "v5e"}, 0, id="a chip too few"),
        pytest.param(cluster_queue(reserved=48), {TPU: "v5e"}, 1, id="just one"),
        pytest.param(cluster_queue(nominal="1k", reserved="936"), {TPU: "v5e"}, 4, id="with a suffix"),
        pytest.param(cluster_queue(reserved=80), {TPU: "v5e"}, 0, id="it has borrowed"),
        pytest.param(cluster_queue(pending=1), {TPU: "v5e"}, 0, id="others wait"),
        pytest.param(cluster_queue(pods=(12, 8)), {TPU: "v5e", "pods": "v5e"}, 1, id="pods are counted"),
        pytest.param(cluster_queue(pods=(12, 8)), {TPU: "v5e"}, 2, id="what is not of a flavor is not limited"),
        pytest.param(cluster_queue(), {TPU: "gone"}, 0, id="the flavor is gone"),
        pytest.param(cluster_queue(), {}, 0, id="no flavor is known"),
        pytest.param(cluster_queue(nominal="nonsense"), {TPU: "v5e"}, 0, id="no number"),
        pytest.param({"spec": {}}, {TPU: "v5e"}, 0, id="nothing is known"),
    ],
)
def test_slices_within_quota(queue: Object, flavors: Object, count: int) -> None:
    need = need_of(jobset())
    assert need is not None
    admission = {**ADMISSION, "podSetAssignments": [{"name": "w", "flavors": flavors}]}
    assert slices_within_quota(queue, admission, need) == count


class Queues:
    """An API server with one admitted Workload and its ClusterQueue."""

    def __init__(self) -> None:
        self.workload: Object = {"status": {"admission": ADMISSION}}
        self.queue: Object | None = cluster_queue()
        self.error: errors.ApiError | None = None
        self.looks = 0

    async def list(self, resource: Resource, namespace: str | None, *, labels: str) -> list[Object]:
        if resource not in WORKLOADS:
            return []  # nodes
        assert (namespace, labels) == (KEY[0], "kueue.x-k8s.io/job-uid=uid")
        return [{}, self.workload]

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        if resource == JOBSETS:
            assert (namespace, name) == KEY
            return jobset()
        assert (resource.plural, namespace, name) == ("clusterqueues", None, "all")
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.queue


def count(queues: Queues, *, wanted: int = 2, enabled: bool = True, times: int = 1) -> int:
    async def look() -> int:
        reader = FreeQuotaReader(cast("Storage", queues), enabled=enabled)
        return [await reader.count(KEY, KEY[1], "uid", wanted=wanted) for _ in range(times)][-1]

    return asyncio.run(look())


def test_it_is_read_once_within_its_interval() -> None:
    queues = Queues()
    assert (count(queues, times=3), queues.looks) == (2, 1)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, 1),
        ({"workload": {"status": {}}}, 0),
        ({"queue": None}, 0),
    ],
    ids=["at most what is wanted", "it is not admitted", "the queue is gone"],
)
def test_what_is_there_is_counted(change: Object, found: int) -> None:
    queues = Queues()
    for name, value in change.items():
        setattr(queues, name, value)
    assert count(queues, wanted=1) == found


def test_an_operator_for_some_namespaces_does_not_look() -> None:
    queues = Queues()
    assert (count(queues, enabled=False), queues.looks) == (0, 0)


def test_without_the_right_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    queues = Queues()
    queues.error = errors.Forbidden("get", 403, "clusterqueues is forbidden")
    with caplog.at_level(logging.WARNING):
        assert (count(queues, times=3), queues.looks) == (0, 1)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "clusterqueues.kueue.x-k8s.io" in said
    assert "do not grow when quota is free" in said


@pytest.mark.parametrize(("queue", "found"), [("team", 1), (None, 0)], ids=["by quota", "by machines"])
def test_quota_counts_for_a_job_with_a_queue_and_machines_for_others(queue: str | None, found: int) -> None:
    """Quota for one slice more is free, and no machine is."""
    queues = Queues()
    queues.queue = cluster_queue(reserved=48)
    evidence = TerminationCache()
    gatherer = Gatherer(
        cast("Storage", queues), Cache(evidence, lambda _: None), evidence, cast("Any", None), Settings()
    )
    stored = StoredJob(manifest=job(slices=4, minSlices=2, checkpointDir="/checkpoints", queue=queue))
    hosts = [
        Host(pod=f"{s}-{h}", slice_index=s, host_index=h, attempt=0, ready=True, succeeded=False, ip="10.0.0.1")
        for s in range(2)
        for h in range(2)
    ]

    async def look() -> int:
        return await gatherer._more_slices(KEY, stored, replace(running(slices=2), uid="uid", name=KEY[1]), hosts)

    assert asyncio.run(look()) == found
