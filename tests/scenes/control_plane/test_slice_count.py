"""A job of four slices goes on with two while machines are missing, and has four again when they are back."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster import nodes, pods
from tools.localcluster.api import Object
from tpujob_contract import kubernetes_names

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

ELASTIC = {
    "accelerator": "cpu:1x1",
    "slices": 4,
    "minSlices": 2,
    "shrinkAfterSeconds": 5,
    "checkpointDir": "/checkpoints",
    "resources": {"requests": {"cpu": "1"}},
}
GROWTH_SECONDS = 240
"""Two looks at the job and at the nodes, half a minute apart, on a busy machine."""
WITHOUT_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 2 node(s) were unschedulable.",
}


def in_slices(found: Iterable[Object]) -> dict[int, Object]:
    """The pods by their slice."""
    return {int(pod["metadata"]["labels"][kubernetes_names.JOB_INDEX]): pod for pod in found}


def leave_without_node(jobs: Jobs, pod: Object) -> None:
    """Writes what kube-scheduler does of a pod that fits nowhere."""
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}/status"
    jobs.api.patch(path, {"status": {"conditions": [WITHOUT_NODE]}})


def make_room(jobs: Jobs, count: int) -> list[str]:
    """Nodes that are ready and empty, each with room for one pod of this namespace's job alone; their names."""
    names = [f"{jobs.namespace[-12:]}-{index}" for index in range(count)]
    for name in names:
        nodes.create_node(jobs.api, name, {"slices-of": jobs.namespace[-12:]})
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        jobs.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": amounts, "capacity": amounts}})
    return names


def wait_while_ready(jobs: Jobs, room: list[str], what: str, holds: Callable[[Object], Any]) -> Object:
    """The job's status once something holds of it; nodes without a kubelet would not stay ready for so long."""

    def look(status: Object) -> Any:
        for name in room:
            nodes.set_node_ready(jobs.api, name, ready=True)
        return holds(status)

    return jobs.wait("llama", what, look, seconds=GROWTH_SECONDS)


def test_four_slices_two_and_four_again(jobs: Jobs) -> None:
    jobs.create("llama", **ELASTIC, nodeSelector={"slices-of": jobs.namespace[-12:]})
    first = in_slices(jobs.wait_pods("llama", 4))
    for index in (0, 1):
        pods.set_running(jobs.api, first[index], ready=False, pod_ip=f"10.1.0.{index + 1}")
    for index in (2, 3):
        leave_without_node(jobs, first[index])

    jobs.wait(
        "llama",
        "two slices",
        lambda s: s.get("slices.current") == 2 and s.get("internal.jobSetUid") and s["incarnation"] == 2,
    )
    second = in_slices(jobs.wait_pods("llama", 2, other_than=list(first.values())))
    assert sorted(second) == [0, 1]
    for pod in second.values():
        given = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}
        assert (given["TPUJOB_SLICES"], given["MEGASCALE_NUM_SLICES"], given["TPUJOB_INCARNATION"]) == ("2", "2", "2")
        pods.set_running(jobs.api, pod)
    small = jobs.wait_phase("llama", "Running")
    assert (small["slices.current"], small["hosts"], small["slices.resizes"]) == (2, 2, 1)
    full_size = next(c for c in small["conditions"] if c["type"] == "FullSize")
    assert (full_size["status"], full_size["reason"]) == ("False", "SlicesMissing")

    room = make_room(jobs, 2)
    wait_while_ready(jobs, room, "four slices", lambda s: s.get("slices.current") == 4 and s.get("internal.jobSetUid"))
    third = in_slices(jobs.wait_pods("llama", 4, other_than=[*first.values(), *second.values()]))
    for pod in third.values():
        pods.set_running(jobs.api, pod)
    whole = jobs.wait("llama", "to run whole", lambda s: s["phase"] == "Running" and s.get("hostsReady") == 4)
    assert (whole["incarnation"], whole["slices.resizes"]) == (3, 2)
    assert not whole.keys() & {"restarts.charged", "restarts.disruptions", "restarts.unexplained", "slices.missingTime"}
    assert not whole.get("restarts.total")
    assert next(c["status"] for c in whole["conditions"] if c["type"] == "FullSize") == "True"

    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"] * 3
    said = {e["reason"]: e for e in jobs.events("llama") if e["reason"] in ("Shrunk", "Grown")}
    assert {reason: event["type"] for reason, event in said.items()} == {"Shrunk": "Warning", "Grown": "Normal"}
    assert re.search("Machines for 2 of 4 slices have been missing since", said["Shrunk"]["message"])
    assert "Machines for 2 more slices are free" in said["Grown"]["message"]
