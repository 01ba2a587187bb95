"""Everything that a night is played on: a control plane with JobSet, Kueue and a scheduler, and machines of paper."""

import base64
import contextlib
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tests.harness.operator_process import NAME, OperatorProcess, grant_rights, rules
from tests.nights.observer import LOST
from tests.nights.schedule import QUEUE, SECRET, Night
from tests.scenes.control_plane.proxy import Proxy
from tools.localcluster import binaries
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.kubelet import SCHEDULER, start_scheduler
from tools.localcluster.kueue import API_VERSION as KUEUE
from tools.localcluster.kueue import KueueController
from tools.localcluster.nodes import create_node

CRD = Path(__file__).parents[2] / "charts" / "tpujob-operator" / "crd"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
CLUSTER_QUEUE = f"/apis/{KUEUE}/clusterqueues/{QUEUE}"
QUOTA = {"cpu": "6", "memory": "100Gi", "ephemeral-storage": "1Ti", "google.com/tpu": "1"}
SHARED_NODES = 4
ROOM, ONE_POD = {"cpu": "500", "memory": "500Gi", "pods": "500"}, {"cpu": "1", "memory": "1Gi", "pods": "10"}
SETTINGS = {"OPERATOR_PROGRESS_INTERVAL_SECONDS": "2", "OPERATOR_RESTART_PAUSE_SECONDS": "1"}


class Stage:
    """Runs within a `with` block, on which one night after the other is played."""

    def __init__(self, directory: Path) -> None:
        """Describes it; nothing is started yet."""
        self.directory = directory
        definitions = [jobset_custom_resources(), CRD]
        self.plane = ControlPlane(directory / "plane", custom_resources=definitions, users=[SCHEDULER])
        self._jobset = JobSetController(self.plane)
        self._kueue = KueueController(self.plane)
        self._stack = ExitStack()
        self._nights = 0

    def __enter__(self) -> Self:
        """Returns when nights can be played."""
        with ExitStack() as stack:
            for part in (self.plane, self._jobset, self._kueue):
                stack.enter_context(part)
            stack.callback(start_scheduler(self.plane, binaries.path("kube-scheduler")).stop)
            self.proxy = stack.enter_context(Proxy(self.plane).serving())
            grant_rights(self.plane)
            self._create_queue()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends everything."""
        self._stack.close()

    def _create_queue(self) -> None:
        create = self.plane.api.create
        kinds = {"apiVersion": KUEUE, "metadata": {"name": QUEUE}}
        create(f"/apis/{KUEUE}/resourceflavors", {**kinds, "kind": "ResourceFlavor", "spec": {}})
        resources = [{"name": name, "nominalQuota": amount} for name, amount in QUOTA.items()]
        groups = [{"coveredResources": list(QUOTA), "flavors": [{"name": QUEUE, "resources": resources}]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        create(f"/apis/{KUEUE}/clusterqueues", {**kinds, "kind": "ClusterQueue", "spec": spec})

    @contextmanager
    def prepared(self, night: Night) -> Iterator[tuple[str, OperatorProcess]]:
        """A fresh namespace with all that jobs need, and an operator that is ready."""
        self._nights += 1
        namespace = f"night-{self._nights}"
        api = self.plane.api
        self.plane.create_namespace(namespace)
        queue = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": QUEUE}}
        api.create(f"/apis/{KUEUE}/namespaces/{namespace}/localqueues", {**queue, "spec": {"clusterQueue": QUEUE}})
        self.give_secret(namespace)
        own = [f"{job.name}.{index}" for job in night.jobs if job.kind == "elastic" for index in range(2)]
        for name in (*own, *(f"all.{index}" for index in range(SHARED_NODES))):
            self.give_node(name)
        operator = OperatorProcess(
            self.plane, self.directory / f"operator-{self._nights}", url=self.proxy.url, **SETTINGS
        )
        try:
            with operator:
                yield namespace, operator
        finally:
            for node in api.items("/api/v1/nodes"):
                api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
            api.delete(f"/api/v1/namespaces/{namespace}")

    def operator_log(self) -> str:
        """What the operators of the last night wrote, one start after the other."""
        files = sorted((self.directory / f"operator-{self._nights}").glob("operator-*.log"), key=_age)
        return "\n".join(file.read_text() for file in files)

    def give_secret(self, namespace: str) -> None:
        """Makes the Secret that some jobs use."""
        key = base64.b64encode(b"value").decode()
        self.plane.api.create(
            f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": SECRET}, "data": {"key": key}}
        )

    def give_node(self, name: str) -> None:
        """Makes a machine, for all jobs or, by its name, for one pod of an elastic job."""
        of = name.rpartition(".")[0]
        create_node(self.plane.api, name, {"night": of, "kubernetes.io/hostname": name})
        amounts = ROOM if of == "all" else ONE_POD
        self.plane.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": amounts, "capacity": amounts}})

    def take_rights(self, number: int) -> None:
        """Takes one rule of its role away from the operator."""
        kept = rules()
        del kept[number % len(kept)]
        self.plane.api.patch(ROLE, {"rules": kept})

    def give_rights(self) -> None:
        """Gives the operator all its rights."""
        self.plane.api.patch(ROLE, {"rules": rules()})

    def set_quota(self, *, is_there: bool) -> None:
        """Takes the quota of the queue away, and what was admitted with it, or gives it back."""
        self.plane.api.patch(CLUSTER_QUEUE, {"spec": {"stopPolicy": "None" if is_there else "HoldAndDrain"}})

    def compact(self) -> None:
        """Has etcd forget all earlier versions."""
        header = self._etcd("range", {"key": base64.b64encode(b"/").decode()})["header"]
        self._etcd("compaction", {"revision": header["revision"]})

    def _etcd(self, what: str, body: Object) -> Object:
        request = urllib.request.Request(f"{self.plane.etcd_url}/v3/kv/{what}", data=json.dumps(body).encode())  # noqa: S310 — http
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            found: Object = json.load(answer)
            return found

    def freeze(self, name: str, seconds: float, operator: OperatorProcess) -> None:
        """Stops a program for a while; it is woken up from a thread, for requests of ours may hang meanwhile."""
        own = {
            "operator": [operator.process.pid] if operator.process is not None else [],
            "jobset": self._jobset.pids,
        }
        for pid in own[name] if name in own else [self.plane.pid_of(name)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            threading.Timer(seconds, _wake, [pid]).start()

    def answers(self) -> bool:
        """Whether the API server is well."""
        try:
            return self.plane.api.text("/readyz") == "ok"
        except LOST:
            return False


def _age(file: Path) -> float:
    return file.stat().st_mtime


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
