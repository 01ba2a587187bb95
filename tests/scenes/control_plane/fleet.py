"""Jobs on machines that a real scheduler chooses among, whose kubelets and launchers are played.

That launchers wait for the pod that takes the place of a lost one is shown in tests/launcher and tests/e2e.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tests.scenes.control_plane.addresses import pod_address
from tests.scenes.control_plane.reporting import reporting
from tests.scenes.control_plane.test_in_place import account_with
from tools.localcluster import binaries, nodes, pods
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.kubelet import SCHEDULER, start_scheduler
from tools.localcluster.kueue import KueueController, can_run_here
from tools.localcluster.toolchain import ToolsUnavailable
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names
from tpujob_contract.reports import in_place

POOL = "cloud.google.com/gke-nodepool"
NODE_LABELS = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}
AMOUNTS = {"cpu": "180", "memory": "720Gi", "google.com/tpu": "4", "pods": "15", "ephemeral-storage": "1Ti"}
HOSTS = 4
SLICE = {"accelerator": "v6e-16", "inPlaceRestarts": 5, "restarts": {"crashes": 0}}
"""No crash is allowed, so that one that is charged by mistake ends the job."""
PATIENCE_SECONDS = 240
COUNTS = (
    "restarts.total",
    "restarts.inPlace",
    "restarts.disruptions",
    "restarts.charged",
    "restarts.unexplained",
    "internal.bookedRestarts",
)
LONGEST_NAME = 24
Place = tuple[int, int]
_NUMBERS = itertools.count(10)


@contextlib.contextmanager
def scheduled_plane(
    directory: Path, custom_resources: Sequence[Path], *, with_kueue: bool = False
) -> Iterator[ControlPlane]:
    """A control plane of its own with a scheduler, the operator and, if asked, Kueue; skips where they cannot be had.

    Pods of other tests are to stay without a node, and Kueue's webhooks would meet them.
    """
    if with_kueue and not can_run_here():
        pytest.skip("no Kueue: it needs Linux, and user namespaces or root")
    try:
        more = binaries.QUEUE if with_kueue else ["kube-scheduler"]
        binaries.build_all(print, (*binaries.CONTROL_PLANE, *more))
    except ToolsUnavailable as reason:
        pytest.skip(f"no {'Kueue' if with_kueue else 'scheduler'}: {reason}")
    definitions = [jobset_custom_resources(), *custom_resources]
    with (
        ControlPlane(directory, custom_resources=definitions, users=[SCHEDULER]) as plane,
        JobSetController(plane),
        KueueController(plane) if with_kueue else contextlib.nullcontext(),
    ):
        grant_rights(plane)
        scheduler = start_scheduler(plane, binaries.path("kube-scheduler"))
        try:
            with OperatorProcess(plane, directory / "operator"):
                yield plane
        finally:
            scheduler.stop()


@contextlib.contextmanager
def fleet_of(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator["Fleet"]:
    """The fleet of one test, in a namespace that is called after its parameter, or else after itself."""
    callspec = getattr(request.node, "callspec", None)
    readable = callspec.id if callspec is not None else request.node.name.removeprefix("test_")
    name = "fleet-" + re.sub(r"[^a-z0-9]+", "-", readable.lower())[:LONGEST_NAME].strip("-")
    plane.create_namespace(name)
    found = Fleet(plane, name)
    with reporting(lambda: found.report, address=found.address):
        yield found
        found.leave()


class Fleet(Jobs):
    """Jobs on node pools of one slice each, whose kubelets the test plays."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.address = pod_address(next(_NUMBERS))
        """Of process 0. The operator may keep its connection to that of another test's."""
        self.report: Object = {"phase": "training", "step": 7}
        self._account: in_place.Account = {}

    def add_pool(self, name: str, *, labels: Object | None = None, taints: Sequence[Object] = ()) -> None:
        """Four machines that are joined."""
        for host in range(HOSTS):
            self.add_node(name, host, labels=labels, taints=taints)

    def add_node(self, pool: str, host: int, *, labels: Object | None = None, taints: Sequence[Object] = ()) -> None:
        """A machine of a pool; its pods are of this namespace alone."""
        name = self.node(pool, host)
        given = {**NODE_LABELS, POOL: f"{self.namespace}-{pool}", "kubernetes.io/hostname": name}
        nodes.create_node(self.api, name, {**given, "fleet": self.namespace, **(labels or {})})
        self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints)}})
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}})

    def node(self, pool: str, host: int) -> str:
        return f"{self.namespace}-{pool}-{host}"

    def train(self, **spec: Any) -> dict[Place, Object]:
        """Starts job `llama` on these pools, and its pods once they run and process 0 reports."""
        self.create("llama", **{**SLICE, "nodeSelector": {"fleet": self.namespace}, **spec})
        return self.run_all(spec.get("slices", 1) * HOSTS)

    def run_all(self, count: int, *, other_than: Sequence[Object] = ()) -> dict[Place, Object]:
        """Runs what the scheduler places, until so many pods run, whose launchers tell of no others before them."""
        known = {pod["metadata"]["uid"] for pod in other_than}
        self._account = {}
        self.report.pop("in_place", None)

        def running() -> dict[Place, Object] | None:
            self._end_deleted()
            found = {at: pod for at, pod in self.there().items() if pod["metadata"]["uid"] not in known}
            for at, pod in found.items():
                if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    pods.set_running(self.api, pod, pod_ip=self._address_of(at))
            return found if sum(pod["status"]["phase"] == "Running" for pod in found.values()) == count else None

        return wait_for(f"{count} running pods", running, timeout_seconds=PATIENCE_SECONDS, explain=self.explain)

    def _end_deleted(self) -> None:
        """Plays the ends of pods that are being deleted."""
        for pod in self.api.items(f"/api/v1/namespaces/{self.namespace}/pods"):
            if "deletionTimestamp" in pod["metadata"]:
                self.end_deleted(pod, exit_code=143, message="told to stop by SIGTERM")

    def _address_of(self, at: Place) -> str:
        return self.address if at == (0, 0) else f"10.1.{at[0]}.{at[1]}"

    def there(self) -> dict[Place, Object]:
        """The pods that may run, by slice and host."""
        found = pods.pods_of_jobset(self.api, self.namespace, "llama")
        return {place(pod): pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")}

    def lose(self, pod: Object) -> None:
        """Deletes a pod, as an eviction does, and plays its end."""
        self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")
        self.end_deleted(pod, exit_code=143, message="told to stop by SIGTERM")

    def replaced(self, before: dict[Place, Object], *lost: Place) -> dict[Place, Object]:
        """All pods, once others run in these places, and those that were there before in all others."""

        def complete() -> dict[Place, Object] | None:
            found = self.there()
            for at, pod in found.items():
                if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    pods.set_running(self.api, pod, pod_ip=self._address_of(at))
            new = {at for at, pod in found.items() if pod["metadata"]["uid"] != before[at]["metadata"]["uid"]}
            assert new <= set(lost), f"{new - set(lost)} lost their pods, too"
            runs = all(pod["status"]["phase"] == "Running" for pod in found.values())
            return found if len(found) == len(before) and new == set(lost) and runs else None

        return wait_for(f"pods in {lost}", complete, timeout_seconds=PATIENCE_SECONDS, explain=self.explain)

    def go_on(self, process: int, *, lead: Object) -> Object:
        """Plays the launchers that all start again with the new pod; the status once it counts that."""
        self._account = account_with(self._account, lead, process=process)
        self.report |= {"in_place": self._account}
        total = in_place.total(self._account)
        self.wait("llama", f"restart {total} in place", lambda s: s.get("restarts.inPlace") == total)
        return self.wait_phase("llama", "Running")

    def machine(self, pod: Object) -> tuple[str, int]:
        """The pool and the number of the machine on which a pod is."""
        pool, _, number = str(pod["spec"]["nodeName"]).removeprefix(f"{self.namespace}-").rpartition("-")
        return pool, int(number)

    def explain(self) -> str:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        events = self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        lines = [f"{p['metadata']['name']} {p['status']['phase']} {p['spec'].get('nodeName')}" for p in found]
        lines += [f"{e['involvedObject']['name']} {e['reason']}: {e['message']}" for e in events[-12:]]
        return "\n".join([*lines, *(str(job.get("status")) for job in self.api.items(self.path))])

    def leave(self) -> None:
        """Frees the machines, which have no kubelets."""
        for job in self.api.items(self.path):
            self.api.delete(f"{self.path}/{job['metadata']['name']}")

        def is_free() -> bool:
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            jobsets = f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{self.namespace}/jobsets"
            found = self.api.items(path)
            for pod in found:
                with contextlib.suppress(ApiError):
                    self.api.delete(f"{path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            return not found and not self.api.items(jobsets)

        wait_for("the machines to be free", is_free, explain=self.explain)
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")
        for node in self.api.items(f"/api/v1/nodes?labelSelector=fleet%3D{self.namespace}"):
            nodes.delete_node(self.api, node["metadata"]["name"])


def place(pod: Object) -> Place:
    """Slice and host."""
    labels = pod["metadata"]["labels"]
    return int(labels[kubernetes_names.JOB_INDEX]), int(labels[kubernetes_names.COMPLETION_INDEX])


def counts(status: Object) -> Object:
    """The restarts that a status counts, without what it has none of."""
    return {name: status[name] for name in COUNTS if status.get(name)}


def pools(fleet: Fleet, found: dict[Place, Object]) -> dict[int, set[str]]:
    """Where each slice lies."""
    slices: dict[int, set[str]] = {}
    for (slice_index, _), pod in found.items():
        slices.setdefault(slice_index, set()).add(fleet.machine(pod)[0])
    return slices
