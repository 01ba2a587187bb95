"""Plays a night: creates its jobs, lets the blows fall, brings everything back, waits for rest, deletes all."""

import heapq
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.harness.operator_process import OperatorProcess
from tests.nights.history import History, PodEnd, Struck
from tests.nights.invariants import left_over, untrue
from tests.nights.kubelet import Kubelet
from tests.nights.observer import LOST, Observer
from tests.nights.schedule import SECRET, Blow, Night, PlannedJob
from tests.nights.stage import Stage
from tests.scenes.control_plane.requests_made import requests_made
from tools.localcluster.api import ApiError, Object
from tpujob_contract import kubernetes_names as names

LOOK_SECONDS = 0.05
REST_SECONDS = 150.0
"""Within which everything is as status says, once nothing is done any more, on a quiet machine."""
GONE_SECONDS = 60.0
BUSY_LOAD = float(os.cpu_count() or 1)
MOST_SLOWNESS = 3.0
PROGRAMS = {"api-server": "kube-apiserver", "jobs": "kube-controller-manager"}
"""Names of programs where those of blows differ."""


def play(stage: Stage, night: Night) -> History:
    """What was seen of a night."""
    with stage.prepared(night) as (namespace, operator):
        player = Player(stage, night, namespace, operator)
        with player.watching():
            player.run()
        return player.history


class Player:
    """One night."""

    def __init__(self, stage: Stage, night: Night, namespace: str, operator: OperatorProcess) -> None:
        """Keeps the parts; `run` plays within `watching`."""
        self._stage, self._night, self._namespace, self._operator = stage, night, namespace, operator
        self._api = stage.plane.api
        self._jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._start = time.monotonic()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._retries = 0
        self._is_down_on_purpose = False
        self.history = History()

    def clock(self) -> float:
        """Seconds since the night began."""
        return time.monotonic() - self._start

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs, everything is seen, and pods have a kubelet."""
        self._observer = Observer(self._api, self._namespace, self.history.seen.append, self.clock)
        self._kubelet = Kubelet(self._api, self._observer, self._night.jobs, self.history.ends.append, self.clock)
        try:
            yield
        finally:
            self._kubelet.stop()
            self._observer.stop()

    def run(self) -> None:
        """From the first job to the last deletion."""
        for job in self._night.jobs:
            self._at(job.created_at, lambda job=job: self._create(job))  # type: ignore[misc]
        for blow in self._night.blows:
            self._at(blow.at, lambda blow=blow: self._strike(blow))  # type: ignore[misc]
        self._until(lambda: not self._due, limit=self._night.seconds + REST_SECONDS)
        self._kubelet.finishes = False
        self._rest(lambda: untrue(self.history), REST_SECONDS)
        self.history.rested_at = self.clock()
        for found in self._observer.now("job"):
            self._try(lambda found=found: self._api.delete(f"{self._jobs}/{found['metadata']['name']}"))  # type: ignore[misc]
        self._until(lambda: not self._due, limit=self.clock() + GONE_SECONDS)
        self._rest(lambda: left_over(self.history), GONE_SECONDS)
        self.history.seconds = self.clock()
        for request in requests_made(self._stage.plane.audit_log, self._namespace):
            if request.is_write and request.code < 400:
                counted = self.history.writes
                counted[request.name] = counted.get(request.name, 0) + 1

    def _rest(self, broken: Callable[[], list[str]], seconds: float) -> None:
        """Returns when nothing is broken for two looks of a second, or the time, longer on a busy machine, is over."""
        slowness = min(max(1.0, os.getloadavg()[0] / BUSY_LOAD), MOST_SLOWNESS)
        until, looks = self.clock() + seconds * slowness, 0
        while looks < 2 and self.clock() < until:
            self._until(lambda: False, limit=self.clock() + 1.0)
            looks = looks + 1 if not broken() else 0

    def _until(self, holds: Callable[[], bool], *, limit: float) -> None:
        """Does what is due until something holds, or until a time."""
        while not holds() and self.clock() < limit:
            while self._due and self._due[0][0] <= self.clock():
                heapq.heappop(self._due)[2]()
            self._revive()
            time.sleep(LOOK_SECONDS)

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._order), act))

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        """Does this later, and again until the API server takes it."""
        self._at(self.clock() + seconds, lambda: self._try(act))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                self._after(1.0, act)
        except LOST:
            self._after(1.0, act)

    def _there(self, make: Callable[[], object]) -> None:
        """Makes something, unless it is there: an attempt that was answered too late may have been heard."""
        try:
            make()
        except ApiError as error:
            if error.status != 409:
                raise

    def _revive(self) -> None:
        """Starts what has ended, as a kubelet does; what nobody has killed is written down."""
        if not self._is_down_on_purpose and not self._operator.is_running():
            self.history.own_ends.append(f"{self.clock():.1f} s: the operator: {self._operator.log()[-2000:]}")
            self._operator.stop()
            self._operator.start()
        self._stage.plane.revive()

    def _create(self, job: PlannedJob) -> None:
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": job.name}, "spec": job.spec}
        self._try(lambda: self._api.create(self._jobs, body))

    def _strike(self, blow: Blow) -> None:
        """Lets a blow fall; one that finds nothing to hit is none."""
        if not self._stage.answers() and blow.target:
            return
        what, _, whom = blow.kind.partition("-")
        known = {"kill": self._kill, "freeze": self._freeze}.get(what)
        try:
            hit = (
                known(blow, PROGRAMS.get(whom, whom))
                if known
                else getattr(self, f"_{blow.kind.replace('-', '_')}")(blow)
            )
        except LOST:
            hit = True  # it may have happened
        if hit is not False:
            at = self.clock()
            node = hit if isinstance(hit, str) else ""
            self.history.struck.append(Struck(at=at, until=at + blow.seconds, blow=blow, node=node))

    def _kill(self, blow: Blow, whom: str) -> bool:
        if whom != "operator":
            self._stage.plane.restart(whom)
            return True
        if not self._operator.is_running():
            return False
        self._is_down_on_purpose = True
        self._operator.kill()
        self._after(blow.seconds, self._start_operator)
        return True

    def _start_operator(self) -> None:
        self._operator.start()
        self._is_down_on_purpose = False

    def _freeze(self, blow: Blow, whom: str) -> None:
        self._stage.freeze(whom, blow.seconds, self._operator)

    def _refuse(self, blow: Blow) -> None:
        self._stage.proxy.refuse = blow.number
        self._after(blow.seconds, lambda: setattr(self._stage.proxy, "refuse", None))

    def _cut_watches(self, _: Blow) -> None:
        self._stage.proxy.end_watches()

    def _silence_watches(self, blow: Blow) -> None:
        self._stage.proxy.silent = True
        self._stage.proxy.end_watches()
        self._after(blow.seconds, lambda: setattr(self._stage.proxy, "silent", False))
        self._after(blow.seconds, self._stage.proxy.end_watches)

    def _compact(self, _: Blow) -> None:
        self._stage.compact()
        self._stage.proxy.end_watches()

    def _take_rights(self, blow: Blow) -> None:
        self._stage.take_rights(blow.number)
        self._after(blow.seconds, self._stage.give_rights)

    def _take_quota(self, blow: Blow) -> None:
        self._stage.set_quota(is_there=False)
        self._after(blow.seconds, lambda: self._stage.set_quota(is_there=True))

    def _wrong_clock(self, blow: Blow) -> None:
        self._kubelet.clock_offset_seconds = blow.number
        self._after(blow.seconds, lambda: setattr(self._kubelet, "clock_offset_seconds", 0))

    def _doom(self, blow: Blow, exit_code: int) -> bool:
        running = [pod for pod in self._kubelet.pods_of(blow.target) if pod["status"].get("phase") == "Running"]
        if not running:
            return False
        pod = running[blow.pod % len(running)]
        self._kubelet.programs[blow.target].doomed[pod["metadata"]["uid"]] = (exit_code, blow.kind)
        return True

    def _crash(self, blow: Blow) -> bool:
        return self._doom(blow, blow.number)

    def _fatal(self, blow: Blow) -> bool:
        return self._doom(blow, blow.number)

    def _stop(self, blow: Blow) -> bool:
        return self._doom(blow, 75)

    def _evict(self, blow: Blow) -> bool:
        return self._doom(blow, 143)

    def _hang(self, blow: Blow) -> None:
        self._kubelet.programs[blow.target].hangs_until = time.monotonic() + blow.seconds

    def _pod(self, blow: Blow) -> Object | None:
        found = [pod for pod in self._kubelet.pods_of(blow.target) if "deletionTimestamp" not in pod["metadata"]]
        return found[blow.pod % len(found)] if found else None

    def _note_end(self, blow: Blow, pod: Object) -> None:
        labels = pod["metadata"]["labels"]
        at, name, attempt = self.clock(), pod["metadata"]["name"], int(labels.get(names.RESTART_ATTEMPT, "0"))
        uid, job = labels.get(names.JOBSET_UID, ""), labels.get(names.JOB_NAME, "")
        end = PodEnd(at=at, pod=name, job=job, jobset=uid, attempt=attempt, exit_code=0, why=blow.kind)
        self.history.ends.append(end)

    def _delete_pod(self, blow: Blow) -> bool:
        pod = self._pod(blow)
        if pod is None:
            return False
        self._note_end(blow, pod)
        self._api.delete(f"{self._pods}/{pod['metadata']['name']}")
        return True

    def _lose_node(self, blow: Blow) -> str | bool:
        pod = self._pod(blow)
        node = pod["spec"].get("nodeName") if pod is not None else None
        if node is None or node in self._kubelet.lost_nodes:
            return False
        for each in self._observer.now("pod"):
            if each["spec"].get("nodeName") == node and each["status"].get("phase") in ("Pending", "Running"):
                self._note_end(blow, each)
        self._kubelet.lost_nodes.add(node)
        self._api.delete(f"/api/v1/nodes/{node}")
        self._after(blow.seconds, lambda: self._bring_back(node))
        return str(node)

    def _bring_back(self, node: str) -> None:
        for pod in self._observer.now("pod"):
            if pod["spec"].get("nodeName") == node:
                path = f"{self._pods}/{pod['metadata']['name']}"
                self._try(lambda path=path: self._api.delete(path, {"gracePeriodSeconds": 0}))  # type: ignore[misc]
        self._there(lambda: self._stage.give_node(node))
        self._kubelet.lost_nodes.discard(node)

    def _delete_jobset(self, blow: Blow) -> None:
        self._api.delete(f"/apis/{names.JOBSET_API_VERSION}/namespaces/{self._namespace}/jobsets/{blow.target}")

    def _delete_policy(self, blow: Blow) -> None:
        name = names.child_name(blow.target)
        self._api.delete(f"/apis/networking.k8s.io/v1/namespaces/{self._namespace}/networkpolicies/{name}")

    def _delete_secret(self, blow: Blow) -> None:
        self._api.delete(f"/api/v1/namespaces/{self._namespace}/secrets/{SECRET}")
        self._kubelet.has_secret = False
        self._after(blow.seconds, self._give_secret)

    def _give_secret(self) -> None:
        self._there(lambda: self._stage.give_secret(self._namespace))
        self._kubelet.has_secret = True

    def _patch(self, blow: Blow, **spec: object) -> bool:
        """Changes the spec; whether the API server has allowed it."""
        try:
            self._api.patch(f"{self._jobs}/{blow.target}", {"spec": spec})
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise
            return False
        return True

    def _edit(self, blow: Blow) -> bool:
        if blow.target.startswith(("trainer", "in-place", "extract")):
            return self._patch(blow, podLabels={"night": str(blow.number)})
        return self._patch(blow, args=[str(blow.number)])

    def _suspend(self, blow: Blow) -> bool:
        self._after(blow.seconds, lambda: self._api.patch(f"{self._jobs}/{blow.target}", {"spec": {"suspend": False}}))
        return self._patch(blow, suspend=True)

    def _retry(self, blow: Blow) -> bool:
        self._retries += 1
        return self._patch(blow, retry=self._retries)

    def _delete(self, blow: Blow) -> None:
        self._api.delete(f"{self._jobs}/{blow.target}")
