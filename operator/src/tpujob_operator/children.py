"""JobSets and pods as the API server shows them, read into the values that decisions are made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tpujob_contract import labels
from tpujob_operator.observed import Ended, Host, JobSetState, parse_time


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
        charged_restarts=status.get("restartsCountTowardsMax") or 0,
        **_shape(jobset),
    )


def hosts_of(jobset: Mapping[str, Any]) -> int:
    """Number of pods that a JobSet manifest asks for."""
    shape = _shape(jobset)
    return shape["slices"] * shape["hosts_per_slice"]


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
