"""What was seen of one TpuTrainingJob and its children: plain values, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tpujob_contract import labels
from tpujob_contract.exit_codes import FATAL, ExitCode


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a trainer container that did not exit with 0."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    """JobSet's restart attempt, from 0."""
    exit_code: int
    message: str
    """The termination message: the last lines, as the launcher or the kubelet wrote them."""
    finished_at: datetime
    """To the second: this is all the precision that Kubernetes has."""
    was_asked: bool = False
    """Whether it had been told to stop (deleted, evicted, preempted): a consequence or a disruption, not a cause."""

    @property
    def cause_order(self) -> tuple[object, ...]:
        """Sorts the likeliest first cause of an attempt's failure to the front.

        A code of 76 to 78 explains everything, whenever it was seen: such a process gives its reason. Then those that
        ended by themselves, before those that were asked to. Then the clock, which counts in seconds and differs
        between hosts, hence last; at last the position, so that the answer is always the same.
        """
        return (self.exit_code not in FATAL, self.is_consequence, self.finished_at, self.slice_index, self.host_index)

    @property
    def is_consequence(self) -> bool:
        """Whether something else made it end."""
        return self.was_asked or self.exit_code == ExitCode.STOPPED


@dataclass(frozen=True, kw_only=True)
class Host:
    """One pod of the job."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    ready: bool
    succeeded: bool
    ip: str | None = None
    waiting_reason: str | None = None
    """Why the container does not start, e.g. ImagePullBackOff; None while it does or is only being created."""
    waiting_message: str = ""
    unschedulable: str | None = None
    """What the scheduler says, when it found no node."""


@dataclass(frozen=True, kw_only=True)
class JobSetState:
    """The JobSet of the job's name."""

    name: str
    uid: str
    owner_uid: str | None
    """The uid of the TpuTrainingJob that it was made for."""
    suspended: bool
    being_deleted: bool
    outcome: str | None
    """`Completed`, `Failed`, or None while it is not finished."""
    outcome_reason: str = ""
    outcome_message: str = ""
    outcome_at: datetime | None = None
    restarts: int = 0
    slices: int = 1
    hosts_per_slice: int = 1

    @property
    def hosts(self) -> int:
        """Number of pods that a complete attempt has."""
        return self.slices * self.hosts_per_slice


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What process 0 says of itself."""

    phase: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    committed_step: int | None = None
    committed_at: datetime | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All that a decision rests on."""

    manifest: Mapping[str, Any]
    """The TpuTrainingJob as read; its status is what has been recorded so far."""
    jobset: JobSetState | None = None
    hosts: tuple[Host, ...] = ()
    """Pods that exist and are not being deleted, of the newest attempt only."""
    ended: tuple[Ended, ...] = ()
    """Failures of containers, read from pods now or seen by the watch before."""
    creation_failure: str | None = None
    """Why pods cannot be created (quota, pod security, an admission webhook), in the API server's words."""
    jobset_refusal: str | None = None
    """Why the JobSet could not be created when that was last tried, in the API server's words."""
    progress: Progress | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def status(self) -> Mapping[str, Any]:
        """The recorded status, empty at first."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def uid(self) -> str:
        """Of the TpuTrainingJob."""
        uid: str = self.manifest["metadata"]["uid"]
        return uid

    @property
    def generation(self) -> int:
        """Counts changes of the spec."""
        generation: int = self.manifest["metadata"]["generation"]
        return generation

    @property
    def spec(self) -> Mapping[str, Any]:
        """As the person wrote it, valid or not."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec


def host_from_pod(pod: Mapping[str, Any]) -> Host:
    """The host that a pod is."""
    status = pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    waiting = _container_state(pod).get("waiting") or _init_waiting(status)
    # Set before anything can have gone wrong.
    reason = (
        waiting.get("reason") if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing") else None
    )
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return Host(
        **_position(pod),
        ready=conditions.get("Ready", {}).get("status") == "True",
        succeeded=status.get("phase") == "Succeeded",
        ip=status.get("podIP") or None,
        waiting_reason=reason,
        waiting_message=waiting.get("message", "") if reason else "",
        unschedulable=scheduled.get("message", "") if unschedulable else None,
    )


def ended_from_pod(pod: Mapping[str, Any]) -> Ended | None:
    """How the pod's trainer container failed; None while it runs or when it exited with 0."""
    state = _container_state(pod)
    terminated = state.get("terminated")
    if not terminated or not terminated.get("exitCode"):
        return None
    conditions = {c["type"]: c for c in pod["status"].get("conditions") or []}
    disrupted = conditions.get("DisruptionTarget", {}).get("status") == "True"
    finished_at = parse_time(terminated.get("finishedAt")) or datetime.fromtimestamp(0, UTC)
    return Ended(
        **_position(pod),
        exit_code=terminated["exitCode"],
        message=(terminated.get("message") or terminated.get("reason") or "").strip(),
        finished_at=finished_at,
        was_asked=disrupted or _deletion_began(pod, finished_at),
    )


def jobset_state(jobset: Mapping[str, Any]) -> JobSetState:
    """The JobSet as far as decisions need it."""
    metadata, status = jobset["metadata"], jobset.get("status") or {}
    owners = [o for o in metadata.get("ownerReferences") or [] if o.get("controller") and o["kind"] == labels.KIND]
    finished: Mapping[str, Any] = next(
        (c for c in status.get("conditions") or [] if c["type"] in ("Completed", "Failed") and c["status"] == "True"),
        {},
    )
    return JobSetState(
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=owners[0]["uid"] if owners else None,
        suspended=bool(jobset["spec"].get("suspend")),
        being_deleted="deletionTimestamp" in metadata,
        outcome=finished.get("type"),
        outcome_reason=finished.get("reason", ""),
        outcome_message=finished.get("message", ""),
        outcome_at=parse_time(finished.get("lastTransitionTime")),
        restarts=status.get("restarts") or 0,
        **_shape(jobset),
    )


def hosts_of(jobset: Mapping[str, Any]) -> int:
    """Number of pods that a JobSet manifest asks for."""
    shape = _shape(jobset)
    return shape["slices"] * shape["hosts_per_slice"]


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time stamp."""
    return datetime.fromisoformat(text) if text else None


def format_time(time: datetime) -> str:
    """The way Kubernetes writes times: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shape(jobset: Mapping[str, Any]) -> dict[str, int]:
    replicated = next(r for r in jobset["spec"]["replicatedJobs"] if r["name"] == labels.REPLICATED_JOB)
    return {
        "slices": replicated.get("replicas", 1),
        "hosts_per_slice": replicated["template"]["spec"].get("parallelism", 1),
    }


def _position(pod: Mapping[str, Any]) -> dict[str, Any]:
    found = pod["metadata"].get("labels") or {}
    return {
        "pod": pod["metadata"]["name"],
        "slice_index": int(found.get(labels.JOB_INDEX, 0)),
        "host_index": int(found.get(labels.COMPLETION_INDEX, 0)),
        "attempt": int(found.get(labels.RESTART_ATTEMPT, 0)),
    }


def _container_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    state: Mapping[str, Any] = next((s.get("state") or {} for s in statuses if s["name"] == labels.CONTAINER), {})
    return state


def _init_waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in status.get("initContainerStatuses") or []:
        waiting: Mapping[str, Any] | None = (container.get("state") or {}).get("waiting")
        if waiting:
            return waiting
    return {}


def _deletion_began(pod: Mapping[str, Any], by: datetime) -> bool:
    """Whether deletion had been asked for when the container ended: the timestamp is the end of the grace period."""
    ends = parse_time(pod["metadata"].get("deletionTimestamp"))
    if ends is None:
        return False
    return (ends - by).total_seconds() <= (pod["metadata"].get("deletionGracePeriodSeconds") or 0)
