"""What a node's own words say about the pods it had."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.operator.building import NOW, pod, terminated
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.from_objects import ended_from_pod
from tpujob_operator.observe.nodes import NodeWatch, node_trouble
from tpujob_resource.models.times import format_time


def node(*, ready: str | None = "True", taints: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": "KubeletNotReady"}]
    return {
        "metadata": {"name": "n", **metadata},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"conditions": conditions},
    }


NODES = {
    "well": (node(), None),
    "gone": (None, "is gone"),
    "going": (node(deletionTimestamp="2030-01-01T00:00:00Z"), "is being removed"),
    "not ready": (node(ready="False"), "is not ready (KubeletNotReady)"),
    "silent": (node(ready="Unknown"), "is not ready (KubeletNotReady)"),
    "new": (node(ready=None), None),
    "TPU taint": (node(taints=("google.com/tpu",)), None),
    "spot, about to go": (node(taints=("cloud.google.com/impending-node-termination",)), "is being taken away"),
    "maintenance": (node(labels={"cloud.google.com/active-node-maintenance": "ONGOING"}), "is under maintenance"),
    "maintenance to come": (node(labels={"cloud.google.com/active-node-maintenance": "PENDING"}), None),
    "cordoned": (node(taints=("node.kubernetes.io/unschedulable",)), None),
}


@pytest.mark.parametrize(
    ("placed_at", "trouble"),
    [(NOW, None), (NOW - timedelta(seconds=1), "was replaced by another machine of its name"), (None, None)],
    ids=["put there since", "put there before", "unknown"],
)
def test_node_that_is_younger_than_a_pod_on_it_is_another_one(placed_at: datetime | None, trouble: str | None) -> None:
    assert node_trouble(node(creationTimestamp=format_time(NOW)), placed_at=placed_at) == trouble


ADDED = NOW + timedelta(minutes=3)


@pytest.mark.parametrize(
    ("placed_at", "lost"),
    [(ADDED + timedelta(seconds=2), []), (ADDED - timedelta(seconds=2), ["n"])],
    ids=["the node was added for it", "its node had that name before"],
)
def test_a_pod_may_wait_for_an_autoscaler_to_add_its_node(placed_at: datetime, lost: list[str]) -> None:
    """Both pods are older than the node. Were it another machine, a crash would be a disruption."""
    crashed = pod(state=terminated(1, after=600), phase="Failed")
    crashed["metadata"]["creationTimestamp"] = format_time(NOW)
    crashed["spec"] = {"nodeName": "n"}
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(placed_at)}
    crashed["status"]["conditions"].append(placed)
    end = ended_from_pod(crashed)
    assert end is not None
    watch = NodeWatch(Nodes(), enabled=True)  # type: ignore[arg-type]
    found = asyncio.run(watch.lost(("team", "llama"), [end], [], judged=0))
    assert [each.name for each in found] == lost


class Nodes:
    """One node, which was added after the pod was made."""

    async def get(self, resource: Resource, namespace: None, name: str) -> dict[str, Any]:
        assert (resource, name) == (Resource("v1", "nodes"), "n")
        return node(creationTimestamp=format_time(ADDED))


@pytest.mark.parametrize(("found", "trouble"), NODES.values(), ids=NODES.keys())
def test_node_says_whether_it_is_well(found: dict[str, Any] | None, trouble: str | None) -> None:
    assert node_trouble(found) == trouble
