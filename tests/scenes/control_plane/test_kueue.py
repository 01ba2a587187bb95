"""Queued jobs, with the real Kueue, JobSet and scheduler: a slice never spans pools, a lost pod costs no quota."""

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.docs.newcomer import section
from tests.harness.jobs import Jobs
from tests.scenes.control_plane.fleet import (
    AMOUNTS,
    HOSTS,
    NODE_LABELS,
    POOL,
    SLICE,
    Fleet,
    counts,
    fleet_of,
    pools,
    scheduled_plane,
)
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.kueue import API_VERSION
from tools.localcluster.nodes import create_node, delete_node
from tools.localcluster.pods import set_running
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names
from tpujob_resource.models.times import format_time

pytestmark = pytest.mark.control_plane

POOLS = ("a", "b")
# For all tests at once: without a kubelet, pods of a test that has ended keep their share.
SMALL = {"google.com/tpu": 16}
IN_ALL = "in the ClusterQueue"
EXPLAINED_SECONDS = 240
"""A Workload is read every 30 s, and the order of its queue every 15 s."""
KEPT = ("QuotaReserved", "Admitted")
QUOTAS = {"google.com/tpu": 128, "cpu": "10k", "memory": "100Ti", "ephemeral-storage": "100Ti"}


@pytest.fixture(scope="module")
def queues(
    tmp_path_factory: pytest.TempPathFactory, custom_resources: list[Path], control_plane: ControlPlane
) -> Iterator[ControlPlane]:
    """A control plane of its own with Kueue, a scheduler and the operator: Kueue's webhooks would meet other tests."""
    with scheduled_plane(tmp_path_factory.mktemp("kueue"), custom_resources, with_kueue=True) as plane:
        _create_queues(plane)
        yield plane


@pytest.fixture
def queued(queues: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """The jobs of a fresh namespace with both local queues, and two free pools of four hosts."""
    namespace = "kueue-" + request.node.callspec.id
    queues.create_namespace(namespace)
    for queue in ("plain", "topology"):
        create(queues, "LocalQueue", queue, {"clusterQueue": queue}, namespace=namespace)
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
    wait_for("the hosts to be free", lambda: _is_free(jobs))
    queues.api.delete(f"/api/v1/namespaces/{namespace}")
    for node in nodes:
        delete_node(queues.api, node)


@pytest.fixture
def crowded(queues: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """The jobs of a namespace whose queue has room for one slice of sixteen chips, given to who matters more."""
    namespace = f"kueue-{request.node.name.removeprefix('test_').replace('_', '-')}"
    queues.create_namespace(namespace)
    groups = [
        {
            "coveredResources": list(QUOTAS),
            "flavors": [
                {"name": "plain", "resources": [{"name": n, "nominalQuota": a} for n, a in (QUOTAS | SMALL).items()]}
            ],
        }
    ]
    preemption = {"withinClusterQueue": "LowerPriority"}
    create(
        queues, "ClusterQueue", namespace, {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
    )
    create(queues, "LocalQueue", "small", {"clusterQueue": namespace}, namespace=namespace)
    yield Jobs(queues, namespace)
    queues.api.delete(f"/api/v1/namespaces/{namespace}")


def _is_free(jobs: Jobs) -> bool:
    """Whether nothing of the job is left; its pods have no kubelet that would end them."""
    pods = f"/api/v1/namespaces/{jobs.namespace}/pods"
    found = jobs.api.items(pods)
    for pod in found:
        with contextlib.suppress(ApiError):
            jobs.api.delete(f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    return not found and not jobs.api.items(f"/apis/{API_VERSION}/namespaces/{jobs.namespace}/workloads")


def _create_queues(plane: ControlPlane) -> None:
    plane.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "low"}, "value": 1})
    urgent = {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 2}
    plane.api.create(f"/apis/{API_VERSION}/workloadpriorityclasses", urgent)
    create(plane, "Topology", "pools", {"levels": [{"nodeLabel": POOL}, {"nodeLabel": "kubernetes.io/hostname"}]})
    accelerator = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in QUOTAS.items()]
    for name, more in (("plain", {}), ("topology", {"topologyName": "pools"})):
        create(plane, "ResourceFlavor", name, {"nodeLabels": accelerator, **more})
        groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": name, "resources": quotas}]}]
        create(plane, "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})


def create(plane: ControlPlane, kind: str, name: str, spec: Object, *, namespace: str | None = None) -> None:
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
        explain=lambda: str(queued.get("llama").get("status")),
    )
    where: dict[str, set[str]] = {}
    for pod in pods:
        slice_index = pod["metadata"]["labels"][kubernetes_names.JOB_INDEX]
        where.setdefault(slice_index, set()).add(pod["spec"]["nodeName"].rsplit("-", 2)[1])
    assert sorted(map(len, where.values())) == [1] * slices
    assert len(set().union(*where.values())) == slices
    (workload,) = queued.api.items(f"/apis/{API_VERSION}/namespaces/{queued.namespace}/workloads")
    assert [c["status"] for c in workload["status"]["conditions"] if c["type"] == "Admitted"] == ["True"]


@pytest.fixture
def fleet(queues: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """On machines with a taint: what tests before it have left gets none of them."""
    with fleet_of(queues, request) as found:
        yield found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("placement", [None, {"requiredTopology": POOL}], ids=["pools by JobSet", "pools by Kueue"])
def test_a_queued_job_keeps_its_quota_and_its_place(fleet: Fleet, placement: Object | None) -> None:
    """Another job waits for all of the quota: it would have it if a pod's share were given back for a moment."""
    mark = {"key": "flavor", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
    make_queue(fleet, chips=2 * 16, topology="pools" if placement else None, toleration=mark)
    for name in "abc":
        taint = {"key": "flavor", "value": "spot", "effect": "NoSchedule"}
        fleet.add_pool(name, labels={"flavor": fleet.namespace}, taints=[taint])
    queued = {"queue": "fleet", "placement": placement}
    first = fleet.train(slices=2, **queued)
    fleet.wait_phase("llama", "Running")
    fleet.create("rival", **{**SLICE, **queued, "slices": 2})
    fleet.wait("rival", "its Workload", lambda s: "insufficient unused quota" in s.get("message", ""))
    (admitted,) = (each for each in workloads(fleet) if "admission" in each["status"])
    where = pools(fleet, first)

    found = first
    for number, lost in enumerate([(1, 2), (1, 0), (0, 0)], start=1):
        fleet.lose(found[lost])
        found = fleet.replaced(found, lost)
        spec = found[lost]["spec"]
        assert spec["nodeSelector"]["flavor"] == fleet.namespace
        assert mark in spec["tolerations"]
        status = fleet.go_on(HOSTS * lost[0] + lost[1], lead=first[0, 0])
        assert counts(status) == {"restarts.total": number, "restarts.inPlace": number, "restarts.disruptions": number}
    assert pools(fleet, found) == where

    (same,) = (each for each in workloads(fleet) if each["metadata"]["uid"] == admitted["metadata"]["uid"])
    assert same["status"]["admission"] == admitted["status"]["admission"]
    assert times(same) == times(admitted)
    others = [each for each in workloads(fleet) if each["metadata"]["uid"] != same["metadata"]["uid"]]
    assert [each["status"].get("admission") for each in others] == [None]
    assert fleet.get("rival")["status"]["phase"] == "Queued"
    said: Counter[str] = Counter()
    for event in fleet.api.items(f"/api/v1/namespaces/{fleet.namespace}/events"):
        said[event["reason"]] += event.get("count") or 1
    assert said["Admitted"] == 1
    # Kueue adds why: EvictedDueToPreempted.
    assert not any(reason.startswith(("Evicted", "Preempted")) for reason in said), said


def make_queue(fleet: Fleet, *, chips: int, topology: str | None, toleration: Object) -> None:
    """A LocalQueue `fleet` with room for so many chips, of machines with a label and a taint of their own."""
    name = fleet.namespace
    more = {"topologyName": topology} if topology else {}
    labels = {"flavor": name}
    create(fleet.plane, "ResourceFlavor", name, {"nodeLabels": labels, "tolerations": [toleration], **more})
    quotas = [{"name": n, "nominalQuota": a} for n, a in (QUOTAS | {"google.com/tpu": chips}).items()]
    groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": name, "resources": quotas}]}]
    create(fleet.plane, "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})
    create(fleet.plane, "LocalQueue", "fleet", {"clusterQueue": name}, namespace=name)


def workloads(fleet: Fleet) -> list[Object]:
    return list(fleet.api.items(f"/apis/{API_VERSION}/namespaces/{fleet.namespace}/workloads"))


def times(workload: Object) -> dict[str, tuple[str, str]]:
    """Since when it has its quota, and is admitted."""
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    return {kind: (conditions[kind]["status"], conditions[kind]["lastTransitionTime"]) for kind in KEPT}


def test_doctor_lists_the_queues_of_a_namespace(queues: ControlPlane) -> None:
    queues.create_namespace("kueue-doctor")
    create(queues, "LocalQueue", "team-a", {"clusterQueue": "plain"}, namespace="kueue-doctor")
    told = subprocess.run(
        [sys.executable, "-m", "tpujob", "doctor", "-n", "kueue-doctor"],
        env={**os.environ, "KUBECONFIG": str(queues.kubeconfig), "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "ok       Kueue: queues for spec.queue: team-a" in told.stdout, told.stderr


def test_wait_in_a_queue_is_explained(crowded: Jobs) -> None:
    wide = {"accelerator": "v6e-16", "queue": "small"}
    crowded.create("llama", **wide, priorityClassName="low")
    wait_for_its_place(crowded, "llama")

    wait_for_a_later_second(crowded)
    crowded.create("second", **wide, priorityClassName="low")
    wait_for_words(crowded, "second", "insufficient unused quota for google.com/tpu")
    # The order is Kueue's own, read through the API server.
    wait_for_words(crowded, "second", f"It is the first {IN_ALL}.")
    wait_for_a_later_second(crowded)
    crowded.create("third", **wide, priorityClassName="low")
    wait_for_words(crowded, "third", f"1 workload is ahead of it {IN_ALL}, 1 of them in queue small.")

    crowded.create("big", labels={kubernetes_names.KUEUE_PRIORITY_CLASS: "urgent"}, **wide)
    wait_for_words(crowded, "llama", f"preempted by JobSet {crowded.namespace}/big")
    wait_for_its_place(crowded, "big")
    wait_for_words(crowded, "third", f"2 workloads are ahead of it {IN_ALL}, 2 of them in queue small.")

    crowded.create("lost", accelerator="v6e-16", queue="nowhere")
    status = wait_for_words(crowded, "lost", "LocalQueue nowhere doesn't exist")
    assert "QueueUnusable" in str(status["conditions"])
    assert [c["status"] for c in status["conditions"] if c["type"] == "Blocked"] == ["True"]


def test_a_job_shrinks_in_its_queue_and_grows_with_its_quota(crowded: Jobs) -> None:
    """Two slices are asked for where the quota is one; later it is two."""
    nodes = [f"elastic-{pool}-{host}" for pool in POOLS for host in range(HOSTS)]
    for node in nodes:
        labels = {**NODE_LABELS, POOL: f"elastic-{node.split('-')[1]}", "kubernetes.io/hostname": node}
        create_node(crowded.api, node, labels)
        crowded.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}})
    elastic = {"slices": 2, "minSlices": 1, "shrinkAfterSeconds": 5, "checkpointDir": "gs://bucket/llama"}
    crowded.create("elastic", accelerator="v6e-16", queue="small", **elastic)
    small = crowded.wait(
        "elastic", "one slice", lambda status: status.get("slices.current") == 1, seconds=EXPLAINED_SECONDS
    )
    assert small["slices.resizes"] == 1
    first = wait_for("a slice to have machines", lambda: _placed(crowded, HOSTS))
    for pod in first:
        set_running(crowded.api, pod)
    crowded.wait_phase("elastic", "Running")

    # A second slice's quota is free, but another job waits: it would get what is free.
    wait_for_a_later_second(crowded)
    crowded.create("rival", accelerator="v6e-256", queue="small")
    wait_for_words(crowded, "rival", "insufficient quota for google.com/tpu")
    queue = f"/apis/{API_VERSION}/clusterqueues/{crowded.namespace}"
    _set_quota(crowded, queue, 32)
    crowded.api.delete(f"{crowded.path}/rival")
    large = crowded.wait(
        "elastic", "two slices", lambda status: status.get("slices.current") == 2, seconds=EXPLAINED_SECONDS
    )
    assert (large["incarnation"], large["slices.resizes"]) == (3, 2)

    def two_slices() -> list[Object] | None:
        """The pods of both, once the kubelet that is not there has let go of the first ones."""
        for pod in first:
            with contextlib.suppress(ApiError):
                path = f"/api/v1/namespaces/{crowded.namespace}/pods/{pod['metadata']['name']}"
                if "deletionTimestamp" in crowded.api.get(path)["metadata"]:
                    crowded.api.delete(path, {"gracePeriodSeconds": 0})
        return _placed(crowded, 2 * HOSTS)

    second = wait_for("both slices to have machines", two_slices, timeout_seconds=EXPLAINED_SECONDS)
    for pod in second:
        set_running(crowded.api, pod)
    whole = crowded.wait_phase("elastic", "Running")
    assert (whole["slices.current"], whole["hostsReady"], whole.get("restarts.total")) == (2, 2 * HOSTS, None)
    said = {event["reason"]: event["message"] for event in crowded.events("elastic")}
    assert "Queue small has not admitted 2 slices since" in said["QueuedSmaller"]
    assert "insufficient quota for google.com/tpu" in said["QueuedSmaller"]
    assert "Places in the queue for 1 more slices are free." in said["Grown"]
    crowded.api.delete(f"{crowded.path}/elastic")
    for node in nodes:
        delete_node(crowded.api, node)


def _set_quota(jobs: Jobs, cluster_queue: str, chips: int) -> None:
    (group,) = jobs.api.get(cluster_queue)["spec"]["resourceGroups"]
    for resource in group["flavors"][0]["resources"]:
        if resource["name"] == "google.com/tpu":
            resource["nominalQuota"] = chips
    jobs.api.patch(cluster_queue, {"spec": {"resourceGroups": [group]}})


def test_the_queues_of_the_page_admit_a_job_and_hold_the_next(queues: ControlPlane) -> None:
    (text,) = re.findall(
        r"```yaml\n(.*?)```", section("docs/gke.md", "Kueue, if several teams share the TPUs"), re.DOTALL
    )
    queues.create_namespace("team-a")
    for each in YAML(typ="safe", pure=True).load_all(text):
        assert each["apiVersion"] == API_VERSION
        metadata = each["metadata"]
        create(queues, each["kind"], metadata["name"], each["spec"], namespace=metadata.get("namespace"))
    jobs = Jobs(queues, "team-a")
    jobs.create("first", accelerator="v5e-16", queue="team-a")
    wait_for_its_place(jobs, "first")
    jobs.create("large", accelerator="v5e-256", queue="team-a")
    wait_for_words(jobs, "large", "insufficient unused quota for google.com/tpu")
    queues.api.delete("/api/v1/namespaces/team-a")


def wait_for_a_later_second(jobs: Jobs) -> None:
    """Returns when what is created next comes after all that waits: Kueue orders by whole seconds, then by uid."""
    workloads = jobs.api.items(f"/apis/{API_VERSION}/namespaces/{jobs.namespace}/workloads")
    last = max(each["metadata"]["creationTimestamp"] for each in workloads)
    wait_for(f"a second after {last}", lambda: format_time(datetime.now(UTC)) > last)


def wait_for_its_place(jobs: Jobs, name: str) -> None:
    places = ("Starting", "WaitingForCapacity")
    jobs.wait(name, "its place", lambda status: status.get("phase") in places, seconds=EXPLAINED_SECONDS)


def wait_for_words(jobs: Jobs, name: str, words: str) -> Object:
    """The job's status once it says so."""
    return jobs.wait(name, words, lambda status: words in status.get("message", ""), seconds=EXPLAINED_SECONDS)
