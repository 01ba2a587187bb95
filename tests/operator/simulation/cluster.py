"""JobSet and the kubelet, as far as an operator sees them: pods come, run, end and are replaced."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from random import Random

from tests.operator.simulation.api import Object, Server
from tpujob_contract import kubernetes_names
from tpujob_contract.exit_codes import FATAL
from tpujob_resource.models.times import format_time

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
NODES = ("node-0", "node-1")
"""So few that a job may avoid both of them."""
HOSTNAME = "kubernetes.io/hostname"


def now() -> datetime:
    """The time of the loop as a date."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


class Cluster:
    """Everything in the cluster that is no operator and no person."""

    def __init__(self, server: Server, random: Random, *, saves: bool = False) -> None:
        self._server = server
        self._random = random
        self._saves = saves
        """Whether processes make steps and commit some, of which their last words tell."""
        self._committed = 0
        self.failures = 0.0
        """Share of looks at a running pod at which it fails."""
        self.finishes = 0.0
        """Share of looks at a running job at which all of its pods finish."""
        self.cordoned: frozenset[str] = frozenset()
        """Nodes that take no pods; those that run there are evicted."""

    async def run(self) -> None:
        version = 0
        for node in NODES:
            self.add_node(node)
        while True:
            is_quiet = version == self._server.version
            version = self._server.version
            await asyncio.sleep(self._random.uniform(0.1, 1.0) * (5 if is_quiet else 1))
            for node in NODES:
                self._set_cordoned(node)
            for jobset in self._server.all("jobsets"):
                if self._is_orphan(jobset):
                    self._server.delete("jobsets", jobset["metadata"]["name"])
                else:
                    self._tend(jobset)
            known = {jobset["metadata"]["uid"] for jobset in self._server.all("jobsets")}
            pods = self._server.all("pods")
            # Of a job that was deleted: they would take up nodes for ever.
            self._end([pod for pod in pods if pod["metadata"]["labels"][kubernetes_names.JOBSET_UID] not in known])

    def add_node(self, name: str) -> None:
        """Adds a machine; nothing happens if it is there."""
        labels, amounts = {HOSTNAME: name}, {"cpu": "1", "memory": "4Gi", "pods": "110"}
        if self._server.get("nodes", name) is None:
            self._server.create(
                "nodes", {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}
            )

    def _set_cordoned(self, name: str) -> None:
        node, spec = self._server.stored("nodes", name), {"unschedulable": name in self.cordoned}
        if node is not None and node.get("spec") != spec:
            self._server.update("nodes", name, lambda found: found.update(spec=spec))

    def _is_orphan(self, jobset: Object) -> bool:
        """Whether the job that it was made for is gone; so it may be, made by a request that came late."""
        (owner,) = jobset["metadata"]["ownerReferences"]
        job = self._server.stored("tputrainingjobs", owner["name"])
        return job is None or job["metadata"]["uid"] != owner["uid"]

    def _tend(self, jobset: Object) -> None:
        """One look of JobSet's controller, and of the kubelet."""
        name, uid = jobset["metadata"]["name"], jobset["metadata"]["uid"]
        pods = [
            pod for pod in self._server.all("pods") if pod["metadata"]["labels"][kubernetes_names.JOBSET_UID] == uid
        ]
        if "deletionTimestamp" in jobset["metadata"]:
            self._end(pods)
            if not pods:
                self._server.delete("jobsets", name)
        elif self._outcome(jobset) is not None or jobset["spec"]["suspend"]:
            self._end([pod for pod in pods if pod["status"]["phase"] != "Succeeded"])
        else:
            self._run(jobset, pods)

    def _run(self, jobset: Object, pods: list[Object]) -> None:
        attempt = (jobset.get("status") or {}).get("restarts", 0)
        old = [pod for pod in pods if _attempt(pod) != attempt or "deletionTimestamp" in pod["metadata"]]
        here = [pod for pod in pods if pod not in old]
        failed = [pod for pod in here if pod["status"]["phase"] == "Failed"]
        evicted = [pod for pod in here if pod["spec"].get("nodeName") in self.cordoned and is_ready(pod)]
        missing = _places(jobset) - {_place(pod) for pod in here}
        if old:
            self._end(old)
        elif failed:
            self._judge(jobset, failed)
        elif missing:
            self._create_pod(jobset, attempt, min(missing))
        elif evicted and evicted[0]["status"]["phase"] == "Running":
            self._evict(evicted[0])
        elif all(pod["status"]["phase"] == "Succeeded" for pod in here):
            self._finish(jobset, "Completed")
        elif any(not is_ready(pod) for pod in here):
            awaited = [pod for pod in here if not is_ready(pod)]
            placed = [pod for pod in awaited if "nodeName" in pod["spec"]]
            if placed:
                self._set_ready(placed[0])
            elif free := self._free(jobset):
                self._place(awaited[0], self._random.choice(free))
        elif self._random.random() < self.finishes:
            for pod in here:
                self._set_ended(pod, 0)
        elif self._random.random() < self.failures:
            self._set_ended(self._random.choice(here), self._random.choice([1, 1, 1, 1, 139, 139, 75, 77]))

    def _judge(self, jobset: Object, failed: list[Object]) -> None:
        codes = {pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in failed}
        if codes & set(FATAL):
            self._finish(jobset, "Failed")
            return
        self.restart(jobset)

    def restart(self, jobset: Object) -> None:
        """JobSet counts a restart; the pods of the attempt before go."""

        def restart(found: Object) -> None:
            status = found.setdefault("status", {})
            status["restarts"] = status.get("restarts", 0) + 1

        self._server.update("jobsets", jobset["metadata"]["name"], restart)

    def _finish(self, jobset: Object, kind: str) -> None:
        condition = {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": format_time(now())}
        self._server.update(
            "jobsets",
            jobset["metadata"]["name"],
            lambda found: found.setdefault("status", {}).update(conditions=[condition]),
        )

    def _outcome(self, jobset: Object) -> str | None:
        conditions = (jobset.get("status") or {}).get("conditions") or []
        return conditions[0]["type"] if conditions else None

    def _free(self, jobset: Object) -> list[str]:
        """Nodes on which another pod of a JobSet fits."""
        template = _template(jobset)
        taken = set()
        if template["spec"]["containers"][0].get("resources", {}).get("requests"):
            # They ask for all that a node has.
            pods = [pod for pod in self._server.all("pods") if pod["status"]["phase"] in ("Pending", "Running")]
            taken = {pod["spec"].get("nodeName") for pod in pods}
        return [node for node in NODES if node not in {*_avoided(template), *self.cordoned, *taken}]

    def _place(self, pod: Object, node: str) -> None:
        def bind(found: Object) -> None:
            found["spec"]["nodeName"] = node
            found["status"].pop("conditions", None)

        self._server.update("pods", pod["metadata"]["name"], bind)

    def ask(self, pod: Object, *, marked: bool = False) -> None:
        """Asks a pod to stop; `marked`: as an eviction, which Kubernetes says of it first."""
        if marked:
            self._mark(pod)
        self._server.update("pods", pod["metadata"]["name"], _ask_to_stop)

    def _mark(self, pod: Object) -> None:
        target = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": format_time(now())}
        name = pod["metadata"]["name"]
        self._server.update("pods", name, lambda found: found["status"]["conditions"].append(target))

    def end(self, pod: Object, code: int) -> None:
        """Its container exits; what Kubernetes says of the pod besides stays."""
        marks = [c for c in self._conditions(pod) if c["type"] == "DisruptionTarget"]
        self._set_ended(pod, code)
        self._server.update("pods", pod["metadata"]["name"], lambda found: found["status"]["conditions"].extend(marks))

    def _conditions(self, pod: Object) -> list[Object]:
        found = self._server.get("pods", pod["metadata"]["name"])
        conditions: list[Object] = (found or {}).get("status", {}).get("conditions") or []
        return conditions

    def _evict(self, pod: Object) -> None:
        self._set_ended(pod, 75)
        self._mark(pod)

    def _create_pod(self, jobset: Object, attempt: int, place: tuple[int, int]) -> None:
        metadata, (slice_index, index) = jobset["metadata"], place
        job = f"{metadata['name']}-{kubernetes_names.REPLICATED_JOB}-{slice_index}"
        labels = {
            kubernetes_names.JOB_NAME: metadata["labels"][kubernetes_names.JOB_NAME],
            kubernetes_names.JOBSET_NAME: metadata["name"],
            kubernetes_names.JOBSET_UID: metadata["uid"],
            kubernetes_names.JOB_INDEX: str(slice_index),
            kubernetes_names.RESTART_ATTEMPT: str(attempt),
            kubernetes_names.COMPLETION_INDEX: str(index),
        }
        suffix = f"{self._random.randrange(16**5):05x}"
        free = self._free(jobset)
        containers = [{"resources": c.get("resources", {})} for c in _template(jobset)["spec"]["containers"]]
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        pod = {
            "metadata": {
                "name": f"{job}-{index}-{suffix}",
                "labels": labels,
                "ownerReferences": [{"kind": "Job", "name": job, "controller": True}],
                "creationTimestamp": format_time(now()),
            },
            "spec": {"containers": containers, **({"nodeName": self._random.choice(free)} if free else {})},
            "status": {"phase": "Pending", **({} if free else {"conditions": [unschedulable]})},
        }
        self._server.create("pods", pod)

    def _set_ready(self, pod: Object) -> None:
        running = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": kubernetes_names.CONTAINER, "state": {"running": {}}}],
        }
        self._server.update("pods", pod["metadata"]["name"], lambda found: found.update(status=running))

    def _set_ended(self, pod: Object, code: int) -> None:
        words = f"ended with {code}{self._report(pod, code)}"
        terminated = {"exitCode": code, "finishedAt": format_time(now()), "message": words}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": kubernetes_names.CONTAINER, "state": {"terminated": terminated}}],
        }
        self._server.update("pods", pod["metadata"]["name"], lambda found: found.update(status=status))

    def _report(self, pod: Object, code: int) -> str:
        """What process 0 leaves: it has begun at the last committed step, and saves where it ends in order."""
        if not self._saves or _place(pod) != (0, 0):
            return ""
        step = self._committed + self._random.randrange(50)
        self._committed = step if code in (0, 75) else self._random.randint(self._committed, step)
        left = {"phase": "stopping", "step": step, "steps": 1_000_000, "committed_step": self._committed}
        return f"\nreport: {json.dumps(left)}"

    def _end(self, pods: list[Object]) -> None:
        """Asks them to stop; those that were asked before are gone by now."""
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                self._server.delete("pods", pod["metadata"]["name"])
                continue
            self._server.update("pods", pod["metadata"]["name"], _ask_to_stop)
            if pod["status"]["phase"] == "Running":
                self._set_ended(pod, 75)


def _places(jobset: Object) -> set[tuple[int, int]]:
    """Slice and host of every pod that a JobSet is to have."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    hosts = replicated["template"]["spec"]["parallelism"]
    return {(slice_index, host) for slice_index in range(replicated["replicas"]) for host in range(hosts)}


def _place(pod: Object) -> tuple[int, int]:
    labels = pod["metadata"]["labels"]
    return int(labels[kubernetes_names.JOB_INDEX]), int(labels[kubernetes_names.COMPLETION_INDEX])


def _attempt(pod: Object) -> int:
    return int(pod["metadata"]["labels"][kubernetes_names.RESTART_ATTEMPT])


def _template(jobset: Object) -> Object:
    (replicated,) = jobset["spec"]["replicatedJobs"]
    template: Object = replicated["template"]["spec"]["template"]
    return template


def _avoided(template: Object) -> list[str]:
    """Names of nodes that pods keep off."""
    affinity = template["spec"].get("affinity")
    if affinity is None:
        return []
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = terms[0]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (HOSTNAME, "NotIn")
    values: list[str] = expression["values"]
    return values


def _ask_to_stop(pod: Object) -> None:
    pod["metadata"]["deletionTimestamp"] = format_time(now() + timedelta(seconds=30))
    pod["metadata"]["deletionGracePeriodSeconds"] = 30


def is_of_attempt(pod: Object, attempt: int) -> bool:
    """Whether a pod belongs to an attempt, and was not asked to stop."""
    return _attempt(pod) == attempt and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Object) -> bool:
    """Whether it runs, or has finished."""
    return pod["status"]["phase"] in ("Running", "Succeeded")
