"""A kubelet for all pods of a night: they start, report, make steps, save, stop when asked, and end as they are told.

Nothing runs. A job's program makes `STEPS_PER_SECOND` steps while all pods of an attempt run, and saves every
`SAVE_SECONDS`. What a node that is lost does is nothing.
"""

import datetime
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import Exchange, HttpServer
from tests.nights.history import PodEnd
from tests.nights.observer import LOST, Observer
from tests.nights.schedule import PlannedJob
from tests.scenes.control_plane.addresses import pod_address
from tools.localcluster import pods
from tools.localcluster.api import Api, ApiError, Object
from tpujob_contract import kubernetes_names as names
from tpujob_contract import ports
from tpujob_contract.reports.report import PATH, final_line

STEPS_PER_SECOND = 10
SAVE_SECONDS = 2.0
LOOK_SECONDS = 0.2
START_SECONDS = 0.4
GRACE_SECONDS = 0.6
PEER_SECONDS = 4.0
"""After which a process ends whose peer has ended and is not there again."""
TIME, TIME_FORMAT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "%Y-%m-%dT%H:%M:%SZ"
STOPPED, PEER_LOST = 75, 1
NOT_STARTED = 137
"""Of a container that a kubelet never started (k8s.io/kubernetes, status_manager.go, TerminatePod)."""


@dataclass(kw_only=True)
class Program:
    """What a job's processes know between their attempts."""

    lasts: float
    committed: int = 0
    ran: float = 0.0
    """Seconds that all pods ran, over all attempts."""
    begun: int = 0
    """Step at which the attempt began."""
    attempt: tuple[str, int] = ("", -1)
    attempt_ran: float = 0.0
    hangs_until: float = 0.0
    is_up: bool = False
    doomed: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Uids of pods to end: exit code, and why."""

    @property
    def step(self) -> int:
        """The last step made."""
        return self.begun + int(self.attempt_ran * STEPS_PER_SECOND)

    def report(self) -> Object:
        """As process 0 serves it."""
        found = {"phase": "training", "step": self.step, "steps": 100000, "loss": 1.0, "tokens_per_second": 5.0}
        return {**found, "committed_step": self.committed}


BY_THE_SCHEDULER = "PodScheduled"
"""The condition whose time is of another clock: kubelets keep conditions that are not theirs as they are."""


class _WithClock(Api):
    """The API as a machine writes to it whose clock is wrong: the times of its own in its patches are."""

    def __init__(self, api: Api) -> None:
        self.__dict__.update(api.__dict__)
        self.offset_seconds = 0

    def patch(self, path: str, body: Object) -> Object:
        return super().patch(path, self._by_own_clock(body))

    def _by_own_clock(self, given: Any) -> Any:
        if isinstance(given, dict):
            is_foreign = given.get("type") == BY_THE_SCHEDULER
            return given if is_foreign else {key: self._by_own_clock(value) for key, value in given.items()}
        if isinstance(given, list):
            return [self._by_own_clock(each) for each in given]
        offset = datetime.timedelta(seconds=self.offset_seconds)
        return TIME.sub(lambda found: _shifted(found[0], offset), given) if isinstance(given, str) else given


def _shifted(text: str, offset: datetime.timedelta) -> str:
    return (datetime.datetime.fromisoformat(text) + offset).strftime(TIME_FORMAT)


class Kubelet:
    """Plays the kubelet in a thread, from its start to `stop`."""

    def __init__(
        self,
        api: Api,
        observer: Observer,
        jobs: tuple[PlannedJob, ...],
        note: Callable[[PodEnd], None],
        clock: Callable[[], float],
    ) -> None:
        """Serves a report for each job, and starts."""
        self._observer, self._note, self._clock = observer, note, clock
        self.programs = {job.name: Program(lasts=job.lasts) for job in jobs}
        self.lost_nodes: set[str] = set()
        self._api = _WithClock(api)
        self.finishes = True
        """Whether programs ever get done."""
        self.has_secret = True
        self._since: dict[str, float] = {}
        """When something was first seen of a pod: its uid with a word."""
        self._ended: set[str] = set()
        self._left: set[str] = set()
        """Uids of pods that ended, and of those that were let go."""
        self._addresses = {job.name: pod_address(number + 1) for number, job in enumerate(jobs)}
        self._servers = [
            HttpServer(self._answer(name), address=address, port=ports.REPORT, poll_seconds=0.5)
            for name, address in self._addresses.items()
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def clock_offset_seconds(self) -> int:
        """How much the clocks of its machines are ahead."""
        return self._api.offset_seconds

    @clock_offset_seconds.setter
    def clock_offset_seconds(self, seconds: int) -> None:
        self._api.offset_seconds = seconds

    def stop(self) -> None:
        """Does nothing any more."""
        self._stopped.set()
        self._thread.join()
        for server in self._servers:
            server.close()

    def pods_of(self, job: str) -> list[Object]:
        """The pods of a job that live, in order."""
        found = [pod for pod in self._observer.now("pod") if pod["metadata"]["labels"].get(names.JOB_NAME) == job]
        living = [pod for pod in found if not self._is_done_with(pod)]
        return sorted(living, key=lambda pod: str(pod["metadata"]["name"]))

    def _is_done_with(self, pod: Object) -> bool:
        """A pod that has ended may be deleted later, or have been while it ended: then the kubelet lets it go, too."""
        uid = pod["metadata"]["uid"]
        return uid in self._left or (uid in self._ended and "deletionTimestamp" not in pod["metadata"])

    def _answer(self, name: str) -> Callable[[Exchange], None]:
        def answer(exchange: Exchange) -> None:
            program = self.programs[name]
            is_known = exchange.path == PATH and program.is_up
            exchange.reply(200 if is_known else 503, json.dumps(program.report()).encode())

        return answer

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(LOOK_SECONDS):
            now = time.monotonic()
            for name, program in self.programs.items():
                try:
                    self._play(name, program, now - last)
                except LOST:
                    continue  # the API server is away, or has refused; the next look goes on
            last = now

    def _play(self, name: str, program: Program, passed: float) -> None:
        found = [pod for pod in self.pods_of(name) if pod["spec"].get("nodeName") not in self.lost_nodes]
        living = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        running = [pod for pod in living if pod["status"].get("phase") == "Running"]
        self._advance(program, living, running, passed)
        for pod in found:
            uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
            if "nodeName" not in pod["spec"]:
                continue
            if uid in program.doomed and phase == "Running":
                self._end(name, program, pod, *program.doomed[uid])
            elif "deletionTimestamp" in pod["metadata"]:
                if self._waited(uid, "leaves") >= GRACE_SECONDS:
                    self._leave(name, program, pod)
            elif phase == "Pending" and self._waited(uid, "starts") >= START_SECONDS:
                self._begin(name, pod)
            elif phase == "Running" and program.ran >= program.lasts and (self.finishes or self._peer_is_done(pod)):
                self._end(name, program, pod, 0, "finished")
            elif phase == "Running" and (lost := self._lost_peer(name, pod)) is not None:
                self._end(name, program, pod, PEER_LOST, "peer", _words_of_peer(lost))

    def _advance(self, program: Program, living: list[Object], running: list[Object], passed: float) -> None:
        program.is_up = bool(running) and len(running) == len(living)
        attempts = {_attempt(pod) for pod in running}
        if not program.is_up or len(attempts) != 1:
            return
        (attempt,) = attempts
        if attempt != program.attempt:
            program.attempt, program.begun, program.attempt_ran = attempt, program.committed, 0.0
        program.ran += passed
        if time.monotonic() < program.hangs_until:
            return
        before = int(program.attempt_ran / SAVE_SECONDS)
        program.attempt_ran += passed
        if int(program.attempt_ran / SAVE_SECONDS) > before:
            program.committed = program.step

    def _waited(self, uid: str, word: str) -> float:
        now = time.monotonic()
        return now - self._since.setdefault(f"{uid} {word}", now)

    def _peer_is_done(self, pod: Object) -> bool:
        same = [each for each in self._observer.now("pod") if _attempt(each) == _attempt(pod)]
        return any(each["status"].get("phase") == "Succeeded" for each in same)

    def _lost_peer(self, name: str, pod: Object) -> Object | None:
        """A pod of the attempt that has failed; None: there is none, or others are ended for it."""
        if name.startswith("extract"):
            return None
        same = [each for each in self._observer.now("pod") if _attempt(each) == _attempt(pod)]
        failed = next((each for each in same if each["status"].get("phase") == "Failed"), None)
        if failed is None or self._waited(pod["metadata"]["uid"], "misses") < PEER_SECONDS:
            return None
        return failed

    def _begin(self, name: str, pod: Object) -> None:
        uses_secret = "valueFrom" in json.dumps(pod["spec"]["containers"][0].get("env", []))
        if uses_secret and not self.has_secret and name.startswith("command"):
            pods.set_waiting(self._api, pod, reason="CreateContainerConfigError", message='secret "night" not found')
            return
        is_first = _is_first(pod)
        pods.set_running(self._api, pod, pod_ip=self._addresses[name] if is_first else None)

    def _leave(self, name: str, program: Program, pod: Object) -> None:
        if pod["status"].get("phase") == "Running":
            program.committed = max(program.committed, program.step if _attempt(pod) == program.attempt else 0)
            self._end(name, program, pod, STOPPED, "asked")
        elif pod["status"].get("phase") == "Pending":
            # As a kubelet does: a pod of a Job that never ends keeps its finalizer, and so its name and its index.
            self._end(name, program, pod, NOT_STARTED, "asked")
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
        self._left.add(pod["metadata"]["uid"])

    def _end(self, name: str, program: Program, pod: Object, exit_code: int, why: str, words: str = "") -> None:
        program.is_up = False
        words = words or f"{why}: exit code {exit_code}"
        message = f"{words}\n{final_line(program.report())}" if _is_first(pod) else words
        at = self._clock()
        try:
            if exit_code == 0:
                pods.set_succeeded(self._api, pod, message=message)
            else:
                disruption = "EvictionByEvictionAPI" if why == "evict" else None
                pods.set_failed(self._api, pod, exit_code=exit_code, message=message, disruption=disruption)
        except ApiError as error:
            if error.status not in (404, 409, 422):
                raise
            return  # gone, or another pod by now
        uid, attempt = _attempt(pod)
        program.doomed.pop(pod["metadata"]["uid"], None)
        if "deletionTimestamp" not in pod["metadata"]:
            self._ended.add(pod["metadata"]["uid"])
        self._note(
            PodEnd(
                at=at, pod=pod["metadata"]["name"], job=name, jobset=uid, attempt=attempt, exit_code=exit_code, why=why
            )
        )


def _attempt(pod: Object) -> tuple[str, int]:
    labels = pod["metadata"]["labels"]
    return labels.get(names.JOBSET_UID, ""), int(labels.get(names.RESTART_ATTEMPT, "0"))


def _words_of_peer(lost: Object) -> str:
    """As launchers write them. One whose program left with 75 tells the others nothing: theirs fail by themselves."""
    states = [each.get("state", {}).get("terminated", {}) for each in lost["status"].get("containerStatuses", [])]
    if any(each.get("exitCode") == STOPPED for each in states) and "deletionTimestamp" not in lost["metadata"]:
        return ""
    return f"lost process {lost['metadata']['labels'].get(names.COMPLETION_INDEX, '0')} on host a: its connection broke"


def _is_first(pod: Object) -> bool:
    labels = pod["metadata"]["labels"]
    return labels.get(names.JOB_INDEX) == "0" and labels.get(names.COMPLETION_INDEX, "0") == "0"
