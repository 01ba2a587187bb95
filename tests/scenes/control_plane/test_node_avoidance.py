"""A node on which a job crashed twice: the JobSet is made anew with pods that keep off it."""

import pytest

from tests.harness.jobs import Jobs
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster import pods
from tools.localcluster.api import Object

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]


def make_node(jobs: Jobs) -> str:
    """A node that is ready, and stays so: the controllers here do not miss its kubelet for a day."""
    name = f"node-{jobs.namespace[-6:]}"
    node = jobs.api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": "h-1"}}})
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": node["metadata"]["creationTimestamp"]}
    jobs.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})
    return name


def crash_on(jobs: Jobs, node: str, earlier: list[Object]) -> list[Object]:
    """Runs an attempt whose first host, on this node, crashes; returns its pods."""
    found = jobs.wait_pods("llama", other_than=earlier)
    pods.bind(jobs.api, found[0], node)
    for pod in found:
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("llama", "Running")
    pods.set_failed(jobs.api, found[0], exit_code=139, message="a chip is not well")
    # On a node without a kubelet its pod would use its grace period to the end.
    jobs.end_deleted(found[0], exit_code=139)
    return found


def test_second_crash_on_a_node_moves_the_job(jobs: Jobs) -> None:
    node = make_node(jobs)
    jobs.create("llama")
    first = crash_on(jobs, node, [])
    jobs.wait("llama", "the crash to be booked", lambda s: s.get("restarts.charged") == 1)
    second = crash_on(jobs, node, first)

    status = jobs.wait(
        "llama", "the next incarnation", lambda s: s.get("incarnation") == 2 and s.get("internal.jobSetUid")
    )
    (entry,) = status["nodeFailures"]
    assert (entry["node"], entry["failures"], entry["exitCode"]) == (node, 2, 139)
    assert (entry["avoidedLabel"], entry["avoidedValue"]) == ("kubernetes.io/hostname", "h-1")
    elsewhere = jobs.wait_pods("llama", other_than=first + second)
    for pod in elsewhere:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["h-1"]}
        ]
        pods.set_running(jobs.api, pod)
    status = jobs.wait_phase("llama", "Running")
    assert (status["restarts.total"], status["restarts.charged"]) == (2, 2)
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama", "llama"]
    said = [e for e in jobs.events("llama") if e["reason"] == "NodeAvoided"]
    assert [e["type"] for e in said] == ["Warning"]
    assert f"crashed 2 times on node {node}" in said[0]["message"]


def test_jobset_keeps_the_affinity_of_a_slice_that_takes_a_pool(jobs: Jobs) -> None:
    """Its webhook writes affinities of its own into the pods of such a slice."""
    jobs.create("llama", accelerator="v5e-16")
    jobs.wait_pods("llama", 1)
    jobs.patch("llama", suspend=True)
    jobs.wait_phase("llama", "Suspended")
    entry = {"node": "n", "failures": 2, "avoidedLabel": "cloud.google.com/gke-nodepool", "avoidedValue": "pool-1"}
    renewed = {
        "phase": "Queued",
        "incarnation": 2,
        "nodeFailures": [entry],
        "internal": {"jobSetUid": None},
        "jobSet": None,
    }
    jobs.api.patch(f"{jobs.path}/llama/status", {"status": renewed})
    jobs.wait("llama", "incarnation 2", lambda s: s["phase"] == "Suspended" and s.get("internal.jobSetUid"))
    jobs.patch("llama", suspend=False)

    (leader,) = jobs.wait_pods("llama", 1)

    affinity = leader["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    expected = {"key": "cloud.google.com/gke-nodepool", "operator": "NotIn", "values": ["pool-1"]}
    assert [term["matchExpressions"] for term in terms] == [[expected]]
    assert affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
