"""For how many more slices there are machines: as kube-scheduler would place their pods."""

import asyncio
import logging
from typing import Any, cast

import pytest

from tests.operator.manifests import manifest
from tpujob_operator.base.settings import Settings
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBSETS, PODS, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.free_slices import FreeSliceReader, may_run, need_of, pod_amounts
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.load import load_job

KEY = ("team", "llama")
POOL = "cloud.google.com/gke-nodepool"
TPU = "google.com/tpu"
type Object = dict[str, Any]


def jobset(*, avoided: tuple[tuple[str, str], ...] = (), **spec: Any) -> Object:
    fields = {"accelerator": "v5e-16", "slices": 4, "minSlices": 2, "checkpointDir": "gs://bucket/llama", **spec}
    return build_jobset(load_job(manifest(**fields)), Settings(), avoided=avoided, slices=2)


CPU: Object = {"accelerator": "cpu:2x1", "resources": {"requests": {"cpu": "500m"}}}


def node(name: str, pool: str = "", *, taints: tuple[Object, ...] = (), **fields: Any) -> Object:
    """A machine of a slice of v5e-16 in this pool, or one without TPUs."""
    labels = {"kubernetes.io/hostname": name}
    amounts: Object = {"cpu": "1", "memory": "4Gi", "pods": "110"}
    if pool:
        shape = {"gke-tpu-accelerator": "tpu-v5-lite-podslice", "gke-tpu-topology": "4x4", "gke-nodepool": pool}
        labels |= {f"cloud.google.com/{key}": value for key, value in shape.items()}
        amounts |= {TPU: "4", "cpu": "112", "memory": "192Gi"}
        taints = ({"key": TPU, "value": "present", "effect": "NoSchedule"}, *taints)
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints), "unschedulable": fields.get("cordoned", False)},
        "status": {
            "allocatable": {**amounts, **fields.get("amounts", {})},
            "conditions": [{"type": "Ready", "status": fields.get("ready", "True")}],
        },
    }


def pool(name: str, hosts: int = 4, **fields: Any) -> list[Object]:
    return [node(f"{name}-{index}", name, **fields) for index in range(hosts)]


def pod(**requests: str) -> Object:
    names = {"tpu": TPU}
    amounts = {names.get(name, name): value for name, value in requests.items()}
    return {"spec": {"containers": [{"resources": {"requests": amounts}}]}}


class Machines:
    """An API server with these nodes, pods and one JobSet, that counts who asks."""

    def __init__(self, nodes: list[Object], pods: dict[str, list[Object]], jobset: Object | None) -> None:
        self.nodes, self.pods, self.jobset = nodes, pods, jobset
        self.asked: list[str] = []
        self.error: errors.ApiError | None = None

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        assert (resource, namespace, name) == (JOBSETS, *KEY)
        return self.jobset

    async def list(self, resource: Resource, namespace: None, *, labels: str = "", fields: str = "") -> list[Object]:
        if resource == PODS:
            name = fields.removeprefix("spec.nodeName=").removesuffix(",status.phase!=Failed,status.phase!=Succeeded")
            self.asked.append(name)
            return self.pods.get(name, [])
        self.asked.append(labels)
        if self.error is not None:
            raise self.error
        return self.nodes


def count(machines: Machines, *, wanted: int = 2, looks: int = 1, enabled: bool = True) -> int:
    async def look() -> int:
        reader = FreeSliceReader(cast("Storage", machines), enabled=enabled)
        return [await reader.count(KEY, "llama", wanted=wanted) for _ in range(looks)][-1]

    return asyncio.run(look())


BUSY = {f"a-{index}": [pod(tpu="4")] for index in range(4)}

# nodes, pods, more of the job: slices
FOUND: dict[str, tuple[list[Object], dict[str, list[Object]], Object, int]] = {
    "no machines": ([], {}, {}, 0),
    "one pool": (pool("a"), {}, {}, 1),
    "two pools": (pool("a") + pool("b"), {}, {}, 2),
    "more than are missing": (pool("a") + pool("b") + pool("c"), {}, {}, 2),
    "a pool that is in use": (pool("a") + pool("b"), BUSY, {}, 1),
    "one host of a pool in use": (pool("a"), {"a-3": [pod(tpu="4")]}, {}, 0),
    "pods that need no chips": (pool("a"), {"a-0": [pod(cpu="100m")]}, {}, 1),
    "a larger pool, one host in use": (pool("a", 5), {"a-4": [pod(tpu="4")]}, {}, 0),
    "a larger pool": (pool("a", 5), {}, {}, 1),
    "half of two pools": (pool("a", 2) + pool("b", 2), {}, {}, 0),
    "a cordoned pool": (pool("a", cordoned=True), {}, {}, 0),
    "a cordoned host": ([*pool("a", 3), node("a-3", "a", cordoned=True)], {}, {}, 0),
    "a host that is not ready": ([*pool("a", 3), node("a-3", "a", ready="False")], {}, {}, 0),
    "chips that are not there yet": (pool("a", amounts={TPU: "0"}), {}, {}, 0),
    "another taint": (pool("a", taints=({"key": "team", "value": "b", "effect": "NoSchedule"},)), {}, {}, 0),
    "a taint that only asks": (pool("a", taints=({"key": "team", "effect": "PreferNoSchedule"},)), {}, {}, 1),
    "spot machines, and the job takes none": (
        pool("a", taints=({"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"},)),
        {},
        {},
        0,
    ),
    "an avoided pool": (pool("a") + pool("b"), {}, {"avoided": ((POOL, "a"),)}, 1),
    "processors, two a slice": ([node("x"), node("y")], {}, CPU, 2),
    "processors, in use": ([node("x"), node("y")], {"x": [pod(cpu="1")]}, CPU, 1),
    "processors, one host short": ([node("x")], {"x": [pod(cpu="500m")]}, CPU, 0),
    "processors, no room for pods": ([node("x", amounts={"pods": "1"})], {}, CPU, 0),
    "processors, nothing is asked for": ([node("x")], {}, {"accelerator": "cpu:2x1"}, 2),
}


@pytest.mark.parametrize("name", FOUND)
def test_slices_are_counted_that_fit(name: str) -> None:
    nodes, pods, more, expected = FOUND[name]
    assert count(Machines(nodes, pods, jobset(**more))) == expected


def test_a_busy_pool_costs_one_question() -> None:
    machines = Machines(pool("a") + pool("b"), BUSY, jobset())
    assert count(machines, looks=3) == 1
    assert machines.asked == [
        "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice,cloud.google.com/gke-tpu-topology=4x4",
        "a-0",
        *(f"b-{index}" for index in range(4)),
    ]


def test_no_more_is_asked_than_matters() -> None:
    small, enough = Machines(pool("a", 3), {}, jobset()), Machines(pool("a") + pool("b"), {}, jobset())
    assert (count(small), small.asked[1:]) == (0, [])
    assert (count(enough, wanted=1), enough.asked[1:]) == (1, [f"a-{index}" for index in range(4)])
    shared = Machines([node(name, amounts={"cpu": "500m"}) for name in "stuvwxyz"], {}, jobset(**CPU))
    assert (count(shared, wanted=3), shared.asked[1:]) == (3, list("stuvwx"))


def test_jobset_that_is_gone_has_no_machines() -> None:
    assert count(Machines(pool("a"), {}, None)) == 0


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose time is what a test says."""

    seconds = 0.0

    def time(self) -> float:
        return self.seconds


def test_machines_are_looked_for_at_intervals() -> None:
    machines, clock = Machines(pool("a"), {}, jobset()), _Clock()
    reader = FreeSliceReader(cast("Storage", machines), enabled=True)
    found: list[int] = []
    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        for seconds, nodes in ((0.0, pool("a")), (29.5, []), (30.0, []), (31.0, pool("a"))):
            clock.seconds, machines.nodes = seconds, nodes
            found.append(runner.run(reader.count(KEY, "llama", wanted=2)))
        reader.forget(KEY)
        reader.forget(KEY)
        found.append(runner.run(reader.count(KEY, "llama", wanted=2)))
        clock.seconds, machines.error = 61.0, errors.Forbidden("list nodes", 403, "no")
        found.append(runner.run(reader.count(KEY, "llama", wanted=2)))
        machines.error = None
        for clock.seconds in (360.5, 361.0):
            found.append(runner.run(reader.count(KEY, "llama", wanted=2)))
    assert found == [1, 1, 0, 0, 1, 0, 0, 1]


def test_without_the_right_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(pool("a"), {}, jobset())
    machines.error = errors.Forbidden("list nodes", 403, "no")
    with caplog.at_level(logging.WARNING):
        assert count(machines, looks=3) == 0
    assert len(machines.asked) == 1
    assert "No right to read nodes" in caplog.text


def test_an_operator_for_some_namespaces_does_not_ask() -> None:
    machines = Machines(pool("a"), {}, jobset())
    assert count(machines, enabled=False) == 0
    assert machines.asked == []


def test_selector_of_the_job_is_minded() -> None:
    need = need_of(jobset(nodeSelector={"team": "a"}))
    assert need is not None
    plain = node("a-0", "a")
    assert not may_run(plain, need)
    plain["metadata"]["labels"]["team"] = "a"
    assert may_run(plain, need)


def test_containers_before_the_others_count_by_the_largest() -> None:
    def container(cpu: str) -> Object:
        return {"resources": {"limits": {"cpu": cpu}}}

    spec = {"containers": [container("1"), container("500m")], "initContainers": [container("2"), container("1")]}
    assert pod_amounts(spec) == {"cpu": 2}


def test_sidecars_run_beside_the_containers_and_later_init_containers() -> None:
    def asks(cpu: int, **fields: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": str(cpu)}}, **fields}

    sidecars = [asks(1, restartPolicy="Always"), asks(2, restartPolicy="Always")]
    assert pod_amounts({"containers": [asks(4)], "initContainers": sidecars}) == {"cpu": 7}
    assert pod_amounts({"containers": [asks(4)], "initContainers": [sidecars[0], asks(9), sidecars[1]]}) == {"cpu": 10}
    assert pod_amounts({"containers": [asks(4)], "initContainers": [asks(9), *sidecars]}) == {"cpu": 9}
