"""Queued jobs on two node pools of one shape, with the real Kueue, JobSet and scheduler: a slice never spans pools."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_plane.jobs import Jobs
from tests.control_plane.operator_process import OperatorProcess, grant_rights
from tools.localcluster import binaries
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.kubelet import SCHEDULER, start_scheduler
from tools.localcluster.kueue import API_VERSION, KueueController, can_run_here
from tools.localcluster.nodes import create_node, delete_node
from tools.localcluster.toolchain import ToolsUnavailable
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

pytestmark = pytest.mark.control_plane

POOL = "cloud.google.com/gke-nodepool"
POOLS = ("a", "b")
HOSTS = 4
NODE_LABELS = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}
AMOUNTS = {"cpu": "180", "memory": "720Gi", "google.com/tpu": "4", "pods": "15", "ephemeral-storage": "1Ti"}
# For all tests at once: without a kubelet, pods of a test that has ended keep their share.
QUOTAS = {"google.com/tpu": 128, "cpu": "10k", "memory": "100Ti", "ephemeral-storage": "100Ti"}


@pytest.fixture(scope="module")
def queues(
    tmp_path_factory: pytest.TempPathFactory, custom_resources: list[Path], control_plane: ControlPlane
) -> Iterator[ControlPlane]:
    """A control plane of its own with Kueue, a scheduler and the operator: Kueue's webhooks would meet other tests."""
    if not can_run_here():
        pytest.skip("no Kueue: it needs Linux, and user namespaces or root")
    try:
        binaries.build_all(print, binaries.QUEUE)
    except ToolsUnavailable as reason:
        pytest.skip(f"no Kueue: {reason}")
    directory = tmp_path_factory.mktemp("kueue")
    definitions = [jobset_custom_resources(), *custom_resources]
    with (
        ControlPlane(directory, custom_resources=definitions, users=[SCHEDULER]) as plane,
        JobSetController(plane),
        KueueController(plane),
    ):
        grant_rights(plane)
        _create_queues(plane)
        scheduler = start_scheduler(plane, binaries.path("kube-scheduler"))
        try:
            with OperatorProcess(plane, directory / "operator"):
                yield plane
        finally:
            scheduler.stop()


@pytest.fixture
def queued(queues: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """The jobs of a fresh namespace with both local queues, and two free pools of four hosts."""
    namespace = "kueue-" + request.node.callspec.id
    queues.create_namespace(namespace)
    for queue in ("plain", "topology"):
        _create(queues, "LocalQueue", queue, {"clusterQueue": queue}, namespace=namespace)
    nodes = [f"{request.node.callspec.id}-{pool}-{host}" for pool in POOLS for host in range(HOSTS)]
    for node in nodes:
        pool = node.rsplit("-", 2)[1]
        create_node(queues.api, node, {**NODE_LABELS, POOL: f"pool-{pool}", "kubernetes.io/hostname": node})
        amounts = {"capacity": AMOUNTS, "allocatable": AMOUNTS}
        queues.api.patch(f"/api/v1/nodes/{node}/status", {"status": amounts})
    jobs = Jobs(queues, namespace)
    yield jobs
    # Before its nodes go: Kueue would move what still runs to the nodes of the next test.
    jobs.api.delete(f"{jobs.path}/llama")
    wait_for("the hosts to be free", lambda: _is_free(jobs), timeout_seconds=60)
    queues.api.delete(f"/api/v1/namespaces/{namespace}")
    for node in nodes:
        delete_node(queues.api, node)


def _is_free(jobs: Jobs) -> bool:
    """Whether nothing of the job is left; its pods have no kubelet that would end them."""
    pods = f"/api/v1/namespaces/{jobs.namespace}/pods"
    found = jobs.api.items(pods)
    for pod in found:
        with contextlib.suppress(ApiError):
            jobs.api.delete(f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    return not found and not jobs.api.items(f"/apis/{API_VERSION}/namespaces/{jobs.namespace}/workloads")


def _create_queues(plane: ControlPlane) -> None:
    _create(plane, "Topology", "pools", {"levels": [{"nodeLabel": POOL}, {"nodeLabel": "kubernetes.io/hostname"}]})
    accelerator = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in QUOTAS.items()]
    for name, more in (("plain", {}), ("topology", {"topologyName": "pools"})):
        _create(plane, "ResourceFlavor", name, {"nodeLabels": accelerator, **more})
        groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": name, "resources": quotas}]}]
        _create(plane, "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})


def _create(plane: ControlPlane, kind: str, name: str, spec: Object, *, namespace: str | None = None) -> None:
    plural = "topologies" if kind == "Topology" else f"{kind.lower()}s"
    scope = f"namespaces/{namespace}/" if namespace else ""
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    plane.api.create(f"/apis/{API_VERSION}/{scope}{plural}", body)


def _placed(jobs: Jobs, count: int) -> list[Object] | None:
    found = jobs.api.items(f"/api/v1/namespaces/{jobs.namespace}/pods")
    placed = [pod for pod in found if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]]
    return placed if len(placed) == count else None


@pytest.mark.parametrize(
    ("queue", "placement", "slices"),
    [
        pytest.param("plain", None, 2, id="plain-two"),
        pytest.param("topology", {"requiredTopology": POOL}, 1, id="topology-one"),
        pytest.param("topology", {"requiredTopology": POOL}, 2, id="topology-two"),
    ],
)
def test_each_slice_lies_in_one_pool(queued: Jobs, queue: str, placement: dict[str, str] | None, slices: int) -> None:
    queued.create("llama", accelerator="v6e-16", slices=slices, queue=queue, placement=placement)
    pods = wait_for(
        "all pods to have a node",
        lambda: _placed(queued, slices * HOSTS),
        timeout_seconds=120,
        explain=lambda: str(queued.get("llama").get("status")),
    )
    pools: dict[str, set[str]] = {}
    for pod in pods:
        slice_index = pod["metadata"]["labels"][kubernetes_names.JOB_INDEX]
        pools.setdefault(slice_index, set()).add(pod["spec"]["nodeName"].rsplit("-", 2)[1])
    assert sorted(map(len, pools.values())) == [1] * slices
    assert len(set().union(*pools.values())) == slices
    (workload,) = queued.api.items(f"/apis/{API_VERSION}/namespaces/{queued.namespace}/workloads")
    assert [c["status"] for c in workload["status"]["conditions"] if c["type"] == "Admitted"] == ["True"]
