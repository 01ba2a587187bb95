"""A job that MultiKueue gives to another cluster: two API servers, each with JobSet, Kueue and the operator."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from tests.docs.newcomer import section
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tests.statuses import flat
from tools.localcluster import binaries
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.kueue import API_VERSION, NAMESPACE, KueueController, can_run_here
from tools.localcluster.toolchain import ToolsUnavailable
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

KUEUE = f"/apis/{API_VERSION}"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
ACCOUNT = "multikueue"
"""On the worker, of the manager's Kueue."""
QUOTAS = {"cpu": "100", "memory": "1Ti"}
SIZED = {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}
LONG_SECONDS = 240


class Clusters(NamedTuple):
    """The one where jobs are submitted, and the one where they run."""

    manager: ControlPlane
    worker: ControlPlane


class Pair(NamedTuple):
    """A namespace of both."""

    manager: Jobs
    worker: Jobs


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, custom_resources: list[Path]) -> Iterator[Clusters]:
    """Set up as the page says."""
    if not can_run_here():
        pytest.skip("no Kueue: it needs Linux, and user namespaces or root")
    try:
        binaries.build_all(print, (*binaries.CONTROL_PLANE, *binaries.QUEUE))
    except ToolsUnavailable as reason:
        pytest.skip(f"no Kueue: {reason}")
    directory = tmp_path_factory.mktemp("multikueue")
    definitions = [jobset_custom_resources(), *custom_resources]
    (configuration,), rights, _ = documents_of_the_page()
    with (
        ControlPlane(directory / "manager", custom_resources=definitions) as manager,
        ControlPlane(directory / "worker", custom_resources=definitions) as worker,
        JobSetController(manager),
        JobSetController(worker),
        KueueController(worker),
        KueueController(manager, workers=[worker], configuration=configuration),
    ):
        for plane in (manager, worker):
            grant_rights(plane)
        for each in rights:
            _create(manager, each)
        _join(manager, worker, role=rights[0])
        with OperatorProcess(manager, directory / "on-manager"), OperatorProcess(worker, directory / "on-worker"):
            yield Clusters(manager, worker)


@pytest.fixture
def pair(clusters: Clusters, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Jobs of a namespace that both clusters have, with the same queue."""
    yield from _namespace(clusters, request.node.name.removeprefix("test_").replace("_", "-")[:50].rstrip("-"))


@pytest.fixture(scope="module")
def after_a_lost_worker(clusters: Clusters) -> Iterator[Pair]:
    """A job that ran when its worker was lost for a while; a fixture, since the new API server outlives the test."""
    for pair in _namespace(clusters, "after-a-lost-worker"):
        _submit(pair, checkpointDir="gs://bucket/llama")
        pair.worker.run("llama")
        _wait(pair, "Running")
        os.kill(clusters.worker.pid_of("kube-apiserver"), signal.SIGKILL)
        wait_for(
            "the manager to miss the worker",
            lambda: _condition(clusters.manager.api.get(f"{KUEUE}/multikueueclusters/worker"), "Active") == "False",
            timeout_seconds=LONG_SECONDS,
        )
        clusters.worker.restart("kube-apiserver")
        yield pair


def _namespace(clusters: Clusters, namespace: str) -> Iterator[Pair]:
    for plane in clusters:
        plane.create_namespace(namespace)
        _kueue(plane, "LocalQueue", "research", {"clusterQueue": "research"}, namespace=namespace)
    yield Pair(Jobs(clusters.manager, namespace), Jobs(clusters.worker, namespace))
    for plane in clusters:
        plane.api.delete(f"/api/v1/namespaces/{namespace}")


def documents_of_the_page() -> list[list[Object]]:
    """The blocks of YAML, each as its documents."""
    blocks = re.findall(r"```yaml\n(.*?)```", section("docs/multi-cluster.md", "MultiKueue"), re.DOTALL)
    return [list(YAML(typ="safe", pure=True).load_all(block)) for block in blocks]


def _join(manager: ControlPlane, worker: ControlPlane, *, role: Object) -> None:
    """Queues in both clusters; the manager's is MultiKueue's, which has an account on the worker."""
    worker.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE)
    # As in kubernetes-sigs/kueue:site/static/examples/multikueue/create-multikueue-kubeconfig.sh.
    of_workloads = [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["*"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
    ]
    _create(worker, role)
    _create(worker, {**role, "metadata": {"name": ACCOUNT}, "rules": of_workloads})
    for each in (role["metadata"]["name"], ACCOUNT):
        account = f"--serviceaccount={NAMESPACE}:{ACCOUNT}"
        worker.kubectl("create", "clusterrolebinding", f"{ACCOUNT}-{each}", f"--clusterrole={each}", account)
    kubeconfig = worker.kubeconfig_of_service_account(NAMESPACE, ACCOUNT).read_text()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "worker"},
        "stringData": {"kubeconfig": kubeconfig},
    }
    manager.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    source = {"kubeConfig": {"location": "worker", "locationType": "Secret"}}
    _kueue(manager, "MultiKueueCluster", "worker", {"clusterSource": source})
    _kueue(manager, "MultiKueueConfig", "all", {"clusters": ["worker"]})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    _kueue(manager, "AdmissionCheck", "multikueue", {"controllerName": MULTIKUEUE, "parameters": parameters})
    for plane in (manager, worker):
        _kueue(plane, "ResourceFlavor", "plain", {})
        quotas = [{"name": name, "nominalQuota": amount} for name, amount in QUOTAS.items()]
        groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": "plain", "resources": quotas}]}]
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]}} if plane is manager else {}
        _kueue(plane, "ClusterQueue", "research", {"namespaceSelector": {}, "resourceGroups": groups, **checks})
    wait_for(
        "the manager to reach the worker",
        lambda: _condition(manager.api.get(f"{KUEUE}/multikueueclusters/worker"), "Active") == "True",
        explain=lambda: str(manager.api.get(f"{KUEUE}/multikueueclusters/worker")),
    )


def _create(plane: ControlPlane, manifest: Object) -> None:
    plane.api.create(f"/apis/rbac.authorization.k8s.io/v1/{manifest['kind'].lower()}s", manifest)


def _kueue(plane: ControlPlane, kind: str, name: str, spec: Object, *, namespace: str | None = None) -> None:
    scope = f"namespaces/{namespace}/" if namespace else ""
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    plane.api.create(f"{KUEUE}/{scope}{kind.lower()}s", body)


def _condition(found: Object, kind: str) -> str | None:
    conditions = found.get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == kind), None)


def _workloads(jobs: Jobs) -> list[Object]:
    return jobs.api.items(f"{KUEUE}/namespaces/{jobs.namespace}/workloads")


def _open_workloads(jobs: Jobs) -> list[Object]:
    return [each for each in _workloads(jobs) if _condition(each, "Finished") != "True"]


def _submit(pair: Pair, **spec: object) -> None:
    *_, (fields,) = documents_of_the_page()
    pair.manager.create("llama", **fields, **SIZED, **spec)


def _explained(pair: Pair) -> str:
    found = [jobs.api.items(jobs.path) + _workloads(jobs) for jobs in pair]
    return "\n".join(str(each) for objects in found for each in objects)


def _wait(pair: Pair, phase: str) -> Object:
    """The status on the manager, once it is in a phase."""
    return wait_for(
        f"phase {phase} on the manager",
        lambda: (status := flat(pair.manager.get("llama").get("status", {}))).get("phase") == phase and status,
        timeout_seconds=LONG_SECONDS,
        explain=lambda: _explained(pair),
    )


def _wait_without_copy(pair: Pair) -> None:
    jobs = pair.worker
    wait_for("the copy to be gone", lambda: not jobs.api.items(jobs.path), explain=lambda: _explained(pair))


def test_job_runs_on_the_worker_and_its_status_is_seen_on_the_manager(pair: Pair) -> None:
    _submit(pair)
    _wait(pair, "Starting")
    copy = pair.worker.get("llama")
    assert "managedBy" not in copy["spec"]
    (workload,) = _workloads(pair.manager)
    jobset = pair.worker.jobset("llama")
    assert jobset is not None
    assert jobset["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == workload["metadata"]["name"]
    assert [each["metadata"]["name"] for each in _workloads(pair.worker)] == [workload["metadata"]["name"]]

    pair.worker.run("llama")
    _wait(pair, "Running")
    assert pair.manager.jobset("llama") is None
    assert pair.manager.events("llama") == []
    pair.worker.finish("llama")
    status = _wait(pair, "Succeeded")
    assert (status["hosts"], status["internal.jobSetUid"]) == (2, jobset["metadata"]["uid"])
    _wait_without_copy(pair)
    assert _open_workloads(pair.manager) == []


def test_suspended_job_leaves_the_worker_and_comes_back(pair: Pair) -> None:
    _submit(pair, gracePeriodSeconds=5)
    _wait(pair, "Starting")
    first = pair.worker.get("llama")["metadata"]["uid"]
    pair.manager.patch("llama", suspend=True)
    _wait_without_copy(pair)
    assert _workloads(pair.manager) == []
    pair.manager.patch("llama", suspend=False)
    _another_copy(pair, first)


def test_deleted_job_leaves_the_worker(pair: Pair) -> None:
    _submit(pair)
    _wait(pair, "Starting")
    pair.manager.api.delete(f"{pair.manager.path}/llama")
    _wait_without_copy(pair)
    assert _workloads(pair.manager) == []


def test_job_that_failed_is_retried_from_the_manager(pair: Pair) -> None:
    _submit(pair, restarts={"crashes": 0})
    pods = pair.worker.run("llama")
    pair.worker.end_pod(pods[0], exit_code=78, message="no such model")
    _wait(pair, "Failed")
    _wait_without_copy(pair)
    assert _open_workloads(pair.manager) == [], "MultiKueue would have it run again"
    pair.manager.patch("llama", retry=1)
    _wait(pair, "Starting")
    assert pair.worker.get("llama")["spec"]["retry"] == 1
    assert len(_open_workloads(pair.manager)) == 1


def test_job_whose_worker_loses_its_quota_leaves_and_comes_back(pair: Pair, clusters: Clusters) -> None:
    """As the page says: until then the manager shows the last copied status, and its Workload the truth."""
    queue = f"{KUEUE}/clusterqueues/research"
    _submit(pair, checkpointDir="gs://bucket/llama", gracePeriodSeconds=5)
    pair.worker.run("llama")
    _wait(pair, "Running")
    clusters.worker.api.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    try:
        _wait_without_copy(pair)
        assert pair.manager.get("llama")["status"]["phase"] in ("Running", "Stopping", "Queued")
        # Kueue deletes the copy first, and writes the end of the admission in a pass of its own.
        wait_for("no admission", lambda: _admitted(pair) == [], explain=lambda: _explained(pair))
    finally:
        clusters.worker.api.patch(queue, {"spec": {"stopPolicy": "None"}})
    _wait(pair, "Starting")
    pair.worker.run("llama")
    _wait(pair, "Running")


def _admitted(pair: Pair) -> list[Object]:
    return [each for each in _workloads(pair.manager) if _condition(each, "Admitted") == "True"]


def test_job_of_the_only_worker_goes_on_there_when_it_is_back(after_a_lost_worker: Pair) -> None:
    pair = after_a_lost_worker
    ran = pair.manager.get("llama")["status"]["internal"]["jobSetUid"]
    pair.worker.finish("llama")
    assert _wait(pair, "Succeeded")["internal.jobSetUid"] == ran


def _another_copy(pair: Pair, first: str) -> str:
    """The uid of the copy that takes the place of the first one."""

    def uid() -> str | None:
        copies = pair.worker.api.items(pair.worker.path)
        return next((str(each["metadata"]["uid"]) for each in copies if each["metadata"]["uid"] != first), None)

    return wait_for("another copy", uid, timeout_seconds=LONG_SECONDS, explain=lambda: _explained(pair))
