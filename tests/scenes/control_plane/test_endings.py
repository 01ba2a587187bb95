"""Restarts, stalls, new incarnations and ends with the real API server and JobSet; the kubelet is played."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import USER, OperatorProcess, rules
from tests.scenes.control_plane.requests_made import jobsets_created
from tests.scenes.control_plane.test_workers import EXTRACTION
from tools.localcluster import audit, pods
from tools.localcluster.api import ApiError, Object
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

TWO_SLICES: dict[str, Any] = {"accelerator": "cpu:1x1", "slices": 2}


def condition(status: Object, kind: str) -> Object:
    found: Object = next((c for c in status.get("conditions", []) if c["type"] == kind), {})
    return found


def test_fatal_code_ends_the_job_whichever_slice_failed_first(jobs: Jobs) -> None:
    """JobSet restarts all because of the 1; the job fails all the same, and names the other."""
    jobs.create("llama", **TWO_SLICES)
    first, second = jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    with jobs.at_one_moment():
        pods.set_failed(jobs.api, first, exit_code=1, message="lost a peer")
        pods.set_failed(jobs.api, second, exit_code=77, message="403 on gs://bucket")

    status = jobs.wait_phase("llama", "Failed")
    assert (status["failure"]["host"], status["failure"]["exitCode"]) == ("slice 1 host 0", 77)
    assert "delete this job and apply it again; its checkpoints are kept" in status["message"]
    wait_for("the JobSet to stop", lambda: _has_stopped(jobs.jobset("llama")))


def test_crashes_beside_a_lost_node_are_free(jobs: Jobs, operator: OperatorProcess) -> None:
    """A pod of a node that is not there (any more) tells why its peer crashed."""
    jobs.create("llama", restarts={"crashes": 0})
    found = jobs.wait_pods("llama")
    pods.bind(jobs.api, found[1], "gone")
    for pod in found:
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("llama", "Running")

    pods.set_failed(jobs.api, found[0], exit_code=134, message="heartbeat timeout")

    jobs.wait("llama", "the cause", lambda s: "Node gone is gone." in s["message"])
    jobs.end_deleted(found[1], exit_code=143)
    for pod in jobs.wait_pods("llama", other_than=found):
        pods.set_running(jobs.api, pod)
    status = jobs.wait_phase("llama", "Running")
    assert (status["restarts.total"], status["restarts.disruptions"], status.get("restarts.charged")) == (1, 1, None)
    assert "Forbidden" not in operator.log()


def test_edited_spec_of_a_failed_job_starts_again(jobs: Jobs) -> None:
    jobs.create("llama")
    found = jobs.run("llama", bound=True)
    jobs.wait_phase("llama", "Running")
    pods.set_failed(jobs.api, found[0], exit_code=78, message="no such preset")
    failed = jobs.wait_phase("llama", "Failed")
    old = jobs.jobset("llama")
    assert old is not None

    jobs.patch("llama", args=["--preset", "tiny"])

    # The other host's pod still uses its grace: nothing of the next incarnation may run beside it.
    jobs.wait("llama", "the old JobSet to go", lambda s: condition(s, "Running").get("reason") == "Remaking")
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"]
    jobs.end_deleted(found[1], exit_code=75)
    again = jobs.wait_pods("llama", other_than=found)
    for pod in again:
        pods.set_running(jobs.api, pod)
    status = jobs.wait_phase("llama", "Running")
    new = jobs.jobset("llama")
    assert new is not None
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert (status["incarnation"], status["internal.jobSetUid"]) == (2, new["metadata"]["uid"])
    assert "failure" not in status
    assert failed["internal.specHash"] != status["internal.specHash"]
    container = again[0]["spec"]["containers"][0]
    assert container["args"] == ["--preset", "tiny"]
    assert {"name": "TPUJOB_INCARNATION", "value": "2"} in container["env"]
    for pod in again:
        pods.set_succeeded(jobs.api, pod)
    jobs.wait_phase("llama", "Succeeded")
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama", "llama"]


def test_suspended_job_of_a_queue_gives_its_place_up_and_queues_again(jobs: Jobs) -> None:
    """The part of Kueue, which resumes what it has admitted whoever suspended it, is played here."""
    jobs.create("llama", queue="team")
    jobs.wait_phase("llama", "Queued")
    old = admit(jobs)
    found = jobs.run("llama", bound=True)
    jobs.wait_phase("llama", "Running")

    jobs.patch("llama", suspend=True)

    jobs.wait_phase("llama", "Stopping")
    for pod in found:
        jobs.end_deleted(pod, exit_code=75)
    status = jobs.wait_phase("llama", "Suspended")
    assert jobs.jobset("llama") is None
    assert "failure" not in status
    jobs.patch("llama", suspend=False)
    assert admit(jobs) != old
    jobs.run("llama")
    status = jobs.wait_phase("llama", "Running")
    assert (status["incarnation"], status.get("restarts.total", 0)) == (2, 0)


def test_queue_of_a_cluster_without_kueue_is_unusable(jobs: Jobs) -> None:
    jobs.create("llama", queue="team")
    status = jobs.wait("llama", "what is missing", lambda s: "QueueUnusable" in str(s.get("conditions")))
    assert "this cluster does not know the Workloads of Kueue" in status["message"]


def admit(jobs: Jobs) -> str:
    """Resumes the JobSet of a queue once it is recorded; returns its uid."""
    status = jobs.wait("llama", "its JobSet to be recorded", lambda status: status.get("internal.jobSetUid"))
    path = f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{jobs.namespace}/jobsets/llama"
    jobs.api.patch(path, {"spec": {"suspend": False}})
    uid: str = status["internal.jobSetUid"]
    return uid


def test_missing_machine_is_told_with_the_autoscaler_s_words(jobs: Jobs) -> None:
    jobs.create("llama", accelerator="v5e-16", image="example.com/image")
    found = jobs.wait_pods("llama", 1)  # the others wait for the first one's node
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name, uid = found[0]["metadata"]["name"], found[0]["metadata"]["uid"]
    event = {
        "metadata": {"name": f"{name}.scale"},
        "involvedObject": {"kind": "Pod", "name": name, "namespace": jobs.namespace, "uid": uid},
        "type": "Warning",
        "reason": "FailedScaleUp",
        "message": "Node scale up in zones us-east5-b failed: GCE quota exceeded.",
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
    jobs.api.create(f"/api/v1/namespaces/{jobs.namespace}/events", event)
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}/status"
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes."}
    jobs.api.patch(path, {"status": {"conditions": [unschedulable]}})

    status = jobs.wait_phase("llama", "WaitingForCapacity")

    assert "GCE quota exceeded. Ask for more TPU quota" in status["message"]
    assert condition(status, "Blocked")["reason"] == "QuotaExceeded"


def test_job_has_its_network_policy_before_it_runs(jobs: Jobs) -> None:
    jobs.create("llama", suspend=True)
    job = jobs.get("llama")
    jobs.wait_phase("llama", "Suspended")
    path = f"/apis/networking.k8s.io/v1/namespaces/{jobs.namespace}/networkpolicies/llama-tpujob"
    policy = jobs.api.get(path)
    assert [owner["uid"] for owner in policy["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"tpujob.dev/job-name": "llama"}
    assert [rule.get("ports") for rule in policy["spec"]["ingress"]] == [None, [{"protocol": "TCP", "port": 9432}]]
    made = policy["metadata"]["resourceVersion"]
    jobs.patch("llama", suspend=False)
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")
    assert jobs.api.get(path)["metadata"]["resourceVersion"] == made


def test_job_of_several_hosts_has_a_secret_that_lives_as_long_as_the_job(jobs: Jobs) -> None:
    secrets = f"/api/v1/namespaces/{jobs.namespace}/secrets"
    jobs.create("alone", accelerator="cpu:1x1")
    jobs.create("llama", restarts={"crashes": 0})
    uid = jobs.get("llama")["metadata"]["uid"]
    pods.set_failed(jobs.api, jobs.wait_pods("llama")[0], exit_code=78, message="no such preset")
    made = jobs.api.get(f"{secrets}/tpujob-{uid}")
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("TpuTrainingJob", uid)]
    assert (made["immutable"], made["type"], list(made["data"])) == (True, "Opaque", ["secret"])
    jobs.wait_phase("llama", "Failed")
    jobs.patch("llama", retry=1)
    jobs.wait("llama", "incarnation 2 to start", lambda s: s.get("incarnation") == 2 and s.get("internal.jobSetUid"))
    assert jobs.api.get(f"{secrets}/tpujob-{uid}") == made, "its pods of both incarnations have one"
    drawn = base64.b64decode(made["data"]["secret"]).decode()
    assert len(drawn) == 43
    shown = str([jobs.get("llama"), jobs.wait_pods("llama"), jobs.events("llama"), jobs.jobset("llama")])
    assert f"tpujob-{uid}" in shown
    assert drawn not in shown
    jobs.wait_pods("alone", 1)
    assert [each["metadata"]["name"] for each in jobs.api.items(secrets)] == [f"tpujob-{uid}"]


def test_raised_retry_starts_a_failed_job_anew(jobs: Jobs) -> None:
    jobs.create("llama", restarts={"crashes": 0})
    first = jobs.wait_pods("llama")
    pods.set_failed(jobs.api, first[0], exit_code=78, message="no such preset")
    jobs.wait_phase("llama", "Failed")
    jobs.patch("llama", restarts={"crashes": 1})
    jobs.patch("llama", retry=1)
    status = jobs.wait(
        "llama", "incarnation 2 to start", lambda s: s.get("incarnation") == 2 and s.get("internal.jobSetUid")
    )
    assert (status.get("restarts.charged"), status["internal.retry"]) == (None, 1)
    assert len(jobs.wait_pods("llama", other_than=first)) == 2
    with pytest.raises(ApiError, match="is a number to raise"):
        jobs.patch("llama", retry=0)


def test_resized_extraction_keeps_its_incarnation(jobs: Jobs) -> None:
    """The one edit of a running job that makes nothing anew: the Job of the JobSet gets another size."""
    jobs.create("features", **{**EXTRACTION, "workers": 1})
    (first,) = jobs.wait_pods("features", 1)
    pods.set_running(jobs.api, first)
    uid = jobs.wait_phase("features", "Running")["internal.jobSetUid"]

    jobs.patch("features", workers=2)

    assert len(jobs.wait_pods("features", 2)) == 2
    status = jobs.wait("features", "2 hosts", lambda s: s.get("hosts") == 2)
    assert (status["incarnation"], status["internal.jobSetUid"]) == (1, uid)


SELDOM = {
    # Without it nothing here is made, for OwnerReferencesPermissionEnforcement asks for it; that is no request.
    ("update", "tpujob.dev", "tputrainingjobs/finalizers"),
    ("patch", "networking.k8s.io", "networkpolicies"),  # after somebody else has changed ours
    ("get", "networking.k8s.io", "networkpolicies"),  # of a job that has its JobSet already: test_one_namespace
    ("get", "", "namespaces"),  # where pods are replaced alone: test_in_place
    ("list", "", "nodes"),  # where slices may be missing: test_slice_count
    ("create", "kueue.x-k8s.io", "workloads"),  # of a job of MultiKueue's: test_multikueue
    ("delete", "kueue.x-k8s.io", "workloads"),  # the same
    ("get", "kueue.x-k8s.io", "workloads"),  # the same
    ("patch", "kueue.x-k8s.io", "workloads"),  # the same
    ("get", "scheduling.k8s.io", "priorityclasses"),  # the same
    ("get", "kueue.x-k8s.io", "workloadpriorityclasses"),  # the same
    ("get", "kueue.x-k8s.io", "clusterqueues"),  # of a job with minSlices in a queue: test_kueue
    ("get", "visibility.kueue.x-k8s.io", "localqueues/pendingworkloads"),  # with Kueue: test_kueue
}


def test_every_right_is_used_and_enough(jobs: Jobs, request: pytest.FixtureRequest) -> None:
    """Last, since it tells of all the others."""
    calls = audit.calls(jobs.plane.audit_log, USER)
    used = {(call.verb, call.api_group, call.resource) for call in calls}
    granted = {
        (verb, group, resource)
        for rule in rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    leases = {(verb, "coordination.k8s.io", "leases") for verb in ("get", "create", "update")}
    assert used - granted - leases == set()
    names = {item.name for item in request.session.items if item.path == request.path}
    if not names >= {name for name in globals() if name.startswith("test_")}:
        pytest.skip("tells only after all of this file")
    assert granted - used - SELDOM == set()


def _has_stopped(jobset: Object | None) -> bool:
    """Whether nothing runs and nothing will."""
    if jobset is None or jobset["spec"].get("suspend"):
        return True
    return any(
        c["type"] == "Failed" and c["status"] == "True" for c in (jobset.get("status") or {}).get("conditions", [])
    )
