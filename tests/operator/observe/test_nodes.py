"""What a node's own words say about the pods it had."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.operator.building import NOW
from tpujob_operator.observe.nodes import node_trouble
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
    ("pod_created_at", "trouble"),
    [(NOW, None), (NOW - timedelta(seconds=1), "was replaced by another machine of its name"), (None, None)],
    ids=["younger pod", "older pod", "unknown"],
)
def test_node_that_is_younger_than_its_pod_is_another_one(pod_created_at: datetime | None, trouble: str | None) -> None:
    assert node_trouble(node(creationTimestamp=format_time(NOW)), pod_created_at=pod_created_at) == trouble


@pytest.mark.parametrize(("found", "trouble"), NODES.values(), ids=NODES.keys())
def test_node_says_whether_it_is_well(found: dict[str, Any] | None, trouble: str | None) -> None:
    assert node_trouble(found) == trouble
