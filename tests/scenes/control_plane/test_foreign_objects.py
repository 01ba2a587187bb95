"""What has a name that the operator would use, and is not the operator's: left as it is, and said in the status."""

import json
from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tools.localcluster.api import Object
from tpujob_contract import kubernetes_names

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

JOBSETS = f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{{}}/jobsets"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
SERVICES = "/api/v1/namespaces/{}/services"
CLOSED = {"podSelector": {}, "policyTypes": ["Ingress"]}
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
FOREIGN_JOBSET: Object = {
    "apiVersion": kubernetes_names.JOBSET_API_VERSION,
    "kind": kubernetes_names.JOBSET_KIND,
    "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": POD}}}}]},
}
SERVICE = {"spec": {"clusterIP": "None", "selector": {"app": "web"}}}

EVENTS = "/api/v1/namespaces/{}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
ABOUT = {"kind": "TpuTrainingJob", "name": "llama", "namespace": "NAMESPACE"}
EVENT = {"involvedObject": ABOUT, "reason": "HostsStarting", "message": "theirs"}
LEASE = {"spec": {"holderIdentity": "somebody"}}

# name: (collection, object, its name, the reason that the status gives)
FOREIGN: dict[str, tuple[str, Object, str, str | None]] = {
    "JobSet": (JOBSETS, FOREIGN_JOBSET, "llama", "NameTaken"),
    "NetworkPolicy of our name": (POLICIES, {"spec": CLOSED}, "llama-tpujob", "NetworkPolicyNameTaken"),
    "NetworkPolicy of the job's name": (POLICIES, {"spec": CLOSED}, "llama", None),
    "Service of our name": (SERVICES, SERVICE, "llama-tpujob", "ServiceNameTaken"),
    "Service of the job's name": (SERVICES, SERVICE, "llama", None),
    "Event about the job": (EVENTS, EVENT, "llama.0123456789abcdef", None),
    "Lease of the job's name": (LEASES, LEASE, "llama", None),
    "Lease of our name": (LEASES, LEASE, "llama-tpujob", None),
}


def _identity(found: Object) -> dict[str, Any]:
    metadata = found["metadata"]
    said = {key: found.get(key) for key in ("spec", "message", "reason", "count")}
    return {"uid": metadata["uid"], "owners": metadata.get("ownerReferences"), **said}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_object_is_left_alone(jobs: Jobs, name: str) -> None:
    collection, body, called, reason = FOREIGN[name]
    path = collection.format(jobs.namespace)
    body = json.loads(json.dumps(body).replace("NAMESPACE", jobs.namespace))
    jobs.api.create(path, {**body, "metadata": {"name": called}})
    before = _identity(jobs.api.get(f"{path}/{called}"))

    jobs.create("llama")
    if reason is None:
        jobs.run("llama")
        jobs.wait_phase("llama", "Running")
    else:
        jobs.wait("llama", reason, lambda s: reason in [c["reason"] for c in s.get("conditions", [])])
    assert _identity(jobs.api.get(f"{path}/{called}")) == before

    jobs.api.delete(f"{jobs.path}/llama")
    assert _identity(jobs.api.get(f"{path}/{called}")) == before


def test_a_job_starts_once_the_service_is_gone(jobs: Jobs) -> None:
    services = SERVICES.format(jobs.namespace)
    jobs.api.create(services, {**SERVICE, "metadata": {"name": "llama-tpujob"}})
    jobs.create("llama")
    jobs.wait("llama", "the name to be taken", lambda s: "Service llama-tpujob exists" in s.get("message", ""))
    assert jobs.api.get(JOBSETS.format(jobs.namespace) + "/llama")["spec"]["suspend"] is True

    jobs.api.delete(f"{services}/llama-tpujob")
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")


def test_pods_find_each_other_by_a_service_of_their_own(jobs: Jobs) -> None:
    jobs.create("llama")
    (pod, *_) = jobs.run("llama")
    jobs.wait_phase("llama", "Running")
    service = jobs.api.get(SERVICES.format(jobs.namespace) + "/llama-tpujob")
    assert service["spec"]["selector"] == {kubernetes_names.JOBSET_NAME: "llama"}
    assert pod["spec"]["subdomain"] == "llama-tpujob"
