"""Converts JobSets and pods, as the API server returns them, to the values that decisions use."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_contract.exit_codes import KILLED, ExitCode
from tpujob_contract.reports.termination_message import NOT_ASKED, program_code
from tpujob_operator.observe.in_place import InPlaceAccount, account_from_message
from tpujob_operator.observe.pod_identity import pod_identity
from tpujob_operator.observe.report import Progress, final_report, without_final_report
from tpujob_operator.observe.state import Ended, Host, JobSetState, Leaving
from tpujob_operator.observe.untrusted import clean_text, parse_count
from tpujob_resource.models.times import EARLIEST, parse_time

MESSAGE_LENGTH = 16384
"""Of a termination message; the kubelet writes at most 12 KiB for all containers of a pod."""
LONGEST_GRACE_SECONDS = 366 * 24 * 3600
"""Limit, because the API server accepts any number of seconds, and large ones overflow `datetime`."""


def host_from_pod(pod: Mapping[str, Any]) -> Host:
    """The host that a pod represents; it must be a pod of a JobSet, see `pod_identity`."""
    status = pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    waiting = _container_state(pod).get("waiting") or _init_waiting(status)
    # The excluded reasons are set before anything can have gone wrong.
    reason = (
        waiting.get("reason") if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing") else None
    )
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return Host(
        **_position(pod),
        ready=conditions.get("Ready", {}).get("status") == "True",
        created_at=parse_time(pod["metadata"].get("creationTimestamp")),
        succeeded=status.get("phase") == "Succeeded",
        ip=status.get("podIP") or None,
        finished_at=_finished_at(pod) if status.get("phase") == "Succeeded" else None,
        waiting_reason=reason,
        waiting_message=waiting.get("message", "") if reason else "",
        unschedulable=scheduled.get("message", "") if unschedulable else None,
    )


REASONS_OF_ANY_END = ("", "Error", "Completed")


def ended_from_pod(pod: Mapping[str, Any]) -> Ended | None:
    """How a pod failed: its trainer container, an init container, or the whole pod; None: it runs, or succeeded."""
    terminated = _terminated(pod) or _failed_before_start(pod)
    if not terminated.get("exitCode"):
        return None
    asked_at = asked_to_stop_at(pod)
    # If the end has no time (the kubelet did not find the container when it ended the pod), a deletion explains it.
    finished_at = parse_time(terminated.get("finishedAt")) or asked_at or datetime.fromtimestamp(0, UTC)
    code = terminated["exitCode"]
    if code == ExitCode.NO_ATTEMPT_LEFT:
        code = program_code(terminated.get("message") or "") or code
    return Ended(
        **_position(pod),
        exit_code=code,
        message=_words(terminated),
        finished_at=finished_at,
        was_asked=bool(_disruption(pod)) or _was_asked_before(finished_at, asked_at, terminated),
        asked_at=asked_at,
        is_disrupted=bool(_disruption(pod)),
        node=pod.get("spec", {}).get("nodeName"),
        created_at=parse_time(pod["metadata"].get("creationTimestamp")),
        placed_at=placed_at(pod),
    )


def _was_asked_before(finished_at: datetime, asked_at: datetime | None, terminated: Mapping[str, Any]) -> bool:
    """Whether a pod was asked to stop before it ended; in the same second, unless its launcher reports otherwise."""
    if asked_at is None or asked_at > finished_at:
        return False
    says_otherwise = NOT_ASKED in (terminated.get("message") or "").splitlines()
    return asked_at < finished_at or not says_otherwise


def leaving_from_pod(pod: Mapping[str, Any]) -> Leaving | None:
    """The pod, if it was asked to stop and still runs; None: it was not asked, or has ended."""
    asked_at = asked_to_stop_at(pod)
    if asked_at is None or _terminated(pod) or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return None
    return Leaving(
        **_position(pod),
        asked_at=asked_at,
        asked_version=None,
        is_disrupted=bool(_disruption(pod)),
        node=pod.get("spec", {}).get("nodeName"),
    )


def _words(terminated: Mapping[str, Any]) -> str:
    """The termination message, followed by the kubelet's reason if it says more than the exit code: OOMKilled.

    A container that is killed as a whole leaves no message, and the kubelet uses its last lines as one.
    """
    message = clean_text(without_final_report(terminated.get("message") or ""), limit=MESSAGE_LENGTH)
    reason = clean_text(terminated.get("reason"), limit=MESSAGE_LENGTH).strip()
    if message and reason in REASONS_OF_ANY_END:
        return message
    return "\n".join(part for part in (message, reason) if part)


def ended_by_deletion(pod: Mapping[str, Any]) -> Ended | None:
    """The end of a deleted pod whose status does not have the end of its container; None: it has."""
    if _terminated(pod):
        return None
    asked_at = asked_to_stop_at(pod)
    return Ended(
        **_position(pod),
        exit_code=KILLED,
        message="the pod was deleted",
        finished_at=parse_time(pod["metadata"].get("deletionTimestamp")) or datetime.fromtimestamp(0, UTC),
        was_asked=True,
        asked_at=asked_at,
        is_disrupted=bool(_disruption(pod)),
        node=pod.get("spec", {}).get("nodeName"),
        created_at=parse_time(pod["metadata"].get("creationTimestamp")),
        placed_at=placed_at(pod),
    )


def account_of_pod(pod: Mapping[str, Any]) -> InPlaceAccount | None:
    """The account of restarts in the same pods of a pod that has ended; None: it has none."""
    account = account_from_message(_terminated(pod).get("message") or "")
    return None if account is None else account_by(host_from_pod(pod), account)


def account_by(host: Host, account: InPlaceAccount) -> InPlaceAccount:
    """An account with what Kubernetes knows of the pod that reports it."""
    is_lead = (host.slice_index, host.host_index) == (0, 0)
    # A job of one pod needs no name for its set of pods.
    lead = account.lead or (host.pod if is_lead else "")
    created_at = host.created_at or EARLIEST
    return replace(account, attempt=host.attempt, lead=lead, created_at=created_at, is_lead=is_lead)


def final_report_of_pod(pod: Mapping[str, Any]) -> Progress | None:
    """The report that process 0 left when it ended; None: it left none, or this is another pod."""
    position = _position(pod)
    if (position["slice_index"], position["host_index"]) != (0, 0):
        return None
    left = final_report(_terminated(pod).get("message") or "")
    return None if left is None else replace(left, is_final=True)


def jobset_state(jobset: Mapping[str, Any]) -> JobSetState:
    """The fields of a JobSet that decisions need."""
    metadata, status = jobset["metadata"], jobset.get("status") or {}
    owners = [
        o for o in metadata.get("ownerReferences") or [] if o.get("controller") and o["kind"] == kubernetes_names.KIND
    ]
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
        incarnation=parse_count((metadata.get("labels") or {}).get(kubernetes_names.INCARNATION)) or 1,
        spec_hash=(metadata.get("annotations") or {}).get(kubernetes_names.SPEC_HASH),
        host_network=_is_on_host_network(jobset),
        **_shape(jobset),
    )


def hosts_of(jobset: Mapping[str, Any]) -> int:
    """Number of pods that a JobSet manifest asks for."""
    shape = _shape(jobset)
    return shape["slices"] * shape["hosts_per_slice"]


def hosts_job(jobset: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The replicated job of a JobSet's hosts, and the spec of its Jobs; empty: there is none."""
    all_replicated = jobset["spec"].get("replicatedJobs") or []
    replicated: Mapping[str, Any] = next(
        (r for r in all_replicated if r.get("name") == kubernetes_names.REPLICATED_JOB), {}
    )
    return replicated, (replicated.get("template") or {}).get("spec") or {}


def _shape(jobset: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of slices and of hosts per slice; 1 if a foreign JobSet with our label does not have them."""
    replicated, of_job = hosts_job(jobset)
    return {"slices": replicated.get("replicas", 1), "hosts_per_slice": of_job.get("parallelism", 1)}


def _is_on_host_network(jobset: Mapping[str, Any]) -> bool:
    _, of_job = hosts_job(jobset)
    return bool(((of_job.get("template") or {}).get("spec") or {}).get("hostNetwork"))


def _position(pod: Mapping[str, Any]) -> dict[str, Any]:
    identity = pod_identity(pod)
    if identity is None:
        raise ValueError(f"pod {pod['metadata']['name']} is no host of a JobSet")
    return {
        "pod": identity.pod,
        "slice_index": identity.slice_index,
        "host_index": identity.host_index,
        "attempt": identity.attempt,
    }


def _container_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    state: Mapping[str, Any] = next(
        (s.get("state") or {} for s in statuses if s["name"] == kubernetes_names.CONTAINER), {}
    )
    return state


def _init_waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in status.get("initContainerStatuses") or []:
        waiting: Mapping[str, Any] | None = (container.get("state") or {}).get("waiting")
        if waiting:
            return waiting
    return {}


def _terminated(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return _container_state(pod).get("terminated") or {}


def _failed_before_start(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The end of a pod whose trainer container never ran: an init container's, or the kubelet's reason for the pod.

    Without it such an end would be unexplained, and not count as a crash.
    """
    status = pod.get("status") or {}
    if status.get("phase") != "Failed":
        return {}
    for container in status.get("initContainerStatuses") or []:
        terminated: Mapping[str, Any] = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            words = terminated.get("message") or terminated.get("reason") or ""
            return {**terminated, "message": f"init container {container['name']}: {words}"}
    reason, message = status.get("reason") or "", status.get("message") or ""
    words = ": ".join(part for part in (reason, message) if part)
    # If the kubelet gives no reason, a deletion is one: it also ends pods whose containers have not started.
    is_deleted = not words and "deletionTimestamp" in pod["metadata"]
    words = words or "it failed before its container ran"
    return {"exitCode": KILLED, "message": words, "finishedAt": None if is_deleted else status.get("startTime")}


def placed_at(pod: Mapping[str, Any]) -> datetime | None:
    """When a pod was scheduled on its node, to the second; None: it was not, or the time is unknown."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    scheduled = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "True"]
    return parse_time(scheduled[0].get("lastTransitionTime")) if scheduled else None


def _finished_at(pod: Mapping[str, Any]) -> datetime | None:
    return parse_time(_terminated(pod).get("finishedAt"))


REFUSED_BY_NODE = ("UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown", "Terminated", "Preempting", "OutOf")
"""Prefixes of `status.reason` of a pod that its node refused to run, or to run any longer, through no fault of the pod
(kubernetes/kubernetes:pkg/kubelet/lifecycle); a TPU node does so while its device plugin starts."""


def _disruption(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition that shows that the pod was ended from outside; empty: there is none."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    marked: Mapping[str, Any] = next(
        (c for c in conditions if c["type"] == "DisruptionTarget" and c["status"] == "True"), {}
    )
    if not marked and status.get("phase") == "Failed" and (status.get("reason") or "").startswith(REFUSED_BY_NODE):
        return {"lastTransitionTime": status.get("startTime")}
    return marked


def asked_to_stop_at(pod: Mapping[str, Any]) -> datetime | None:
    """When a pod was first marked for disruption, or deleted (the timestamp is the end of the grace period)."""
    asked = parse_time(_disruption(pod).get("lastTransitionTime"))
    ends = parse_time(pod["metadata"].get("deletionTimestamp"))
    if ends is not None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        deleted = ends - timedelta(seconds=min(grace, LONGEST_GRACE_SECONDS))
        asked = deleted if asked is None else min(asked, deleted)
    return asked
