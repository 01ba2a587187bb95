"""The JobSet controller and its webhooks are real: they refuse, fill in, create, complete and fail."""

from typing import Any

import pytest

from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.nodes import create_node, delete_node
from tools.localcluster.pods import (
    bind,
    end_deleted_pod,
    set_failed,
    set_running,
    set_succeeded,
    set_waiting,
    wait_for_pods,
)
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

pytestmark = pytest.mark.control_plane

# Fails at once on exit code 77, restarts on anything else.
FATAL_RULE = {
    "name": "fatal",
    "action": "FailJobSet",
    "onJobFailureReasons": ["PodFailurePolicy"],
    "onJobFailureMessagePatterns": ["failed with exit code 77 "],
}
POD_FAILURE_RULE = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [77]}}


def test_webhook_rejects_what_the_schema_cannot_see(api: Api, namespace: str) -> None:
    with pytest.raises(ApiError, match=r'admission webhook "validate-jobset.*denied the request'):
        create_jobset(api, namespace, name="a" * 63)
    assert api.items(jobsets(namespace)) == []


def test_schema_rejects_a_replicated_job_named_twice(api: Api, namespace: str) -> None:
    manifest = jobset("twice", replicas=1, hosts=1)
    manifest["spec"]["replicatedJobs"] *= 2

    with pytest.raises(ApiError, match="Duplicate value"):
        api.create(jobsets(namespace), manifest)


def test_webhook_fills_in_defaults(api: Api, namespace: str) -> None:
    spec = create_jobset(api, namespace)["spec"]

    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["network"]["enableDNSHostnames"] is True
    assert spec["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"


def test_jobset_makes_jobs_and_pods_and_a_service(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, replicas=2, hosts=2)

    pods = wait_for_pods(api, namespace, "job", 4)

    assert [pod["spec"]["hostname"] for pod in pods] == ["job-w-0-0", "job-w-0-1", "job-w-1-0", "job-w-1-1"]
    assert {pod["status"]["phase"] for pod in pods} == {"Pending"}
    jobs = api.items(f"/apis/batch/v1/namespaces/{namespace}/jobs")
    assert sorted(job["metadata"]["name"] for job in jobs) == ["job-w-0", "job-w-1"]
    assert api.get(f"/api/v1/namespaces/{namespace}/services/job")["spec"]["clusterIP"] == "None"


def test_ready_pods_count_as_ready_jobs(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, hosts=2)
    first, second = wait_for_pods(api, namespace, "job", 2)

    set_running(api, first)
    set_running(api, second, ready=False)
    wait_for_jobs(api, namespace, active=1, ready=0)
    set_running(api, second, pod_ip="127.0.0.1")

    wait_for_jobs(api, namespace, active=1, ready=1)


def test_succeeded_pods_complete_the_jobset(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, replicas=2, hosts=2)

    for pod in wait_for_pods(api, namespace, "job", 4):
        set_running(api, pod)
        set_succeeded(api, pod, message="step 100")

    assert wait_for_end(api, namespace)["type"] == "Completed"


def test_exit_code_named_by_the_policy_fails_the_jobset(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, hosts=2, max_restarts=3)
    first, second = wait_for_pods(api, namespace, "job", 2)
    set_running(api, first)
    set_running(api, second)

    set_failed(api, first, exit_code=77, message="no permission to write gs://bucket")

    assert wait_for_end(api, namespace)["reason"] == "FailJobSetFailurePolicyAction"
    failed = api.get(pod_path(first))["status"]
    assert failed["containerStatuses"][0]["state"]["terminated"]["message"] == "no permission to write gs://bucket"


def test_another_exit_code_restarts_the_jobset(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, hosts=2, max_restarts=3)
    before = wait_for_pods(api, namespace, "job", 2)

    set_failed(api, before[0], exit_code=1)

    wait_for_pods(api, namespace, "job", 2, other_than=before)
    assert api.get(f"{jobsets(namespace)}/job")["status"]["restarts"] == 1


def test_deleted_pod_on_a_node_stays_until_its_end_is_played(api: Api, namespace: str) -> None:
    node = f"node-{namespace[-6:]}"
    create_node(api, node)
    create_jobset(api, namespace, max_restarts=3)
    (pod,) = wait_for_pods(api, namespace, "job", 1)
    bind(api, pod, node)
    set_running(api, pod)

    api.delete(pod_path(pod))
    assert "deletionTimestamp" in api.get(pod_path(pod))["metadata"]
    end_deleted_pod(api, pod, exit_code=143)

    wait_for_pods(api, namespace, "job", 1, other_than=[pod])
    delete_node(api, node)


def test_status_says_what_was_written(api: Api, namespace: str) -> None:
    create_jobset(api, namespace, hosts=2)
    first, second = wait_for_pods(api, namespace, "job", 2)

    waiting = set_waiting(api, first, reason="ImagePullBackOff", message="no such image")
    disrupted = set_failed(api, second, exit_code=143, disruption="TerminationByKubelet")

    assert waiting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    conditions = {condition["type"]: condition for condition in disrupted["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    assert conditions["Ready"]["status"] == "False"


def jobset(name: str, *, replicas: int, hosts: int, max_restarts: int = 0) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    job: dict[str, Any] = {"parallelism": hosts, "completions": hosts, "backoffLimit": 0, "template": {"spec": pod}}
    job |= {"podFailurePolicy": {"rules": [POD_FAILURE_RULE]}, "podReplacementPolicy": "Failed"}
    return {
        "apiVersion": kubernetes_names.JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": max_restarts, "rules": [FATAL_RULE]},
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": job}}],
        },
    }


def create_jobset(
    api: Api, namespace: str, *, name: str = "job", replicas: int = 1, hosts: int = 1, max_restarts: int = 0
) -> Object:
    return api.create(jobsets(namespace), jobset(name, replicas=replicas, hosts=hosts, max_restarts=max_restarts))


def jobsets(namespace: str) -> str:
    return f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{namespace}/jobsets"


def pod_path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def wait_for_jobs(api: Api, namespace: str, **expected: int) -> None:
    """Waits until the JobSet counts its replicated jobs as expected."""

    def counts() -> Object:
        (status,) = api.get(f"{jobsets(namespace)}/job").get("status", {}).get("replicatedJobsStatus") or [{}]
        return {key: status.get(key) for key in expected}

    wait_for(f"the JobSet to count {expected}", lambda: counts() == expected, explain=lambda: str(counts()))


def wait_for_end(api: Api, namespace: str) -> Object:
    """The condition that ended the JobSet."""

    def ending() -> Object | None:
        conditions = api.get(f"{jobsets(namespace)}/job").get("status", {}).get("conditions", [])
        endings = [item for item in conditions if item["type"] in ("Completed", "Failed") and item["status"] == "True"]
        return endings[0] if endings else None

    return wait_for("the JobSet to end", ending)
