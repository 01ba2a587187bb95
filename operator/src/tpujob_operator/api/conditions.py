"""Everything that a TpuTrainingJob's status can say: condition types, reasons and their sentences, in one list.

Reasons are part of the interface: scripts match them. Sentences say what is, and where somebody has to act, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from tpujob_operator.api.status import Phase
from tpujob_operator.times import format_time

MESSAGE_LENGTH = 2000
"""Longest message; the rest is cut in the middle, since first and last lines say most."""


TERMINAL = (Phase.SUCCEEDED, Phase.FAILED)
"""Phases that nothing leaves by itself."""


class Type(StrEnum):
    """Condition types. Those that do not apply yet are absent; `kubectl wait --for=condition=Succeeded` works."""

    VALID = "Valid"
    RUNNING = "Running"
    BLOCKED = "Blocked"
    """Pods cannot be created or started, and waiting alone will not change that."""
    STALLED = "Stalled"
    """All hosts run, and nothing comes of it."""
    CHECKPOINT_HEALTHY = "CheckpointHealthy"
    """Saves succeed; false while they fail and training goes on all the same."""
    DATA_HEALTHY = "DataHealthy"
    """Data comes as fast as it is used; false while its source is slow or fails."""
    ISOLATED = "Isolated"
    """A NetworkPolicy of the job's own closes its ports to others; false while somebody else's has its name."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Reason(StrEnum):
    """Why a condition is as it is; `SENTENCES` has the words."""

    ACCEPTED = "Accepted"
    REJECTED = "Rejected"

    CREATING = "Creating"
    NAME_TAKEN = "NameTaken"
    LEFTOVER = "Leftover"
    IN_QUEUE = "InQueue"
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    TAKEN_BACK = "TakenBack"
    LEAVING_QUEUE = "LeavingQueue"
    EDITED = "Edited"
    RETRIED = "Retried"
    REMAKING = "Remaking"
    RESTARTING = "Restarting"
    RESTART_PAUSED = "RestartPaused"
    HOSTS_STARTING = "HostsStarting"
    ALL_HOSTS_READY = "AllHostsReady"
    ENDED = "Ended"

    JOBSET_REFUSED = "JobSetRefused"
    CREATION_REFUSED = "CreationRefused"
    JOBS_REFUSED = "JobsRefused"
    CANNOT_START = "CannotStart"
    UNSCHEDULABLE = "Unschedulable"
    NO_POOL_FITS = "NoPoolFits"
    QUOTA_EXCEEDED = "QuotaExceeded"
    TOPOLOGY_REFUSED = "TopologyRefused"
    RESERVATION_UNUSABLE = "ReservationUnusable"
    SCALE_UP_FAILED = "ScaleUpFailed"
    SCALE_UP_REQUESTED = "ScaleUpRequested"
    OUT_OF_RESOURCES = "OutOfResources"
    UNBLOCKED = "Unblocked"

    NO_STEP = "NoStep"
    NO_REPORT = "NoReport"
    PEERS_FINISHED = "PeersFinished"
    PROGRESSING = "Progressing"

    SAVES_SUCCEED = "SavesSucceed"
    SAVES_FAIL = "SavesFail"
    DATA_FLOWS = "DataFlows"
    DATA_SLOW = "DataSlow"

    NETWORK_POLICY_MADE = "NetworkPolicyMade"
    NETWORK_POLICY_NAME_TAKEN = "NetworkPolicyNameTaken"

    FINISHED = "Finished"
    HOST_FAILED = "HostFailed"
    CRASHED_TOO_OFTEN = "CrashedTooOften"
    UNEXPLAINED_TOO_OFTEN = "UnexplainedTooOften"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    JOBSET_FAILED = "JobSetFailed"
    JOBSET_DELETED = "JobSetDeleted"


SENTENCES: Mapping[Reason, str] = {
    Reason.ACCEPTED: "The spec is complete and possible.",
    Reason.REJECTED: "{problems}",
    Reason.CREATING: "The JobSet is being created.",
    Reason.NAME_TAKEN: "JobSet {name} exists and was not made for this job; delete it, or give the job another name.",
    Reason.LEFTOVER: "JobSet {name} of an earlier job of this name is still being deleted; this one starts after it.",
    Reason.IN_QUEUE: "Waiting for queue {queue} to admit the job; `kubectl get workloads` says why.",
    Reason.SUSPENDED: "Suspended by spec.suspend; set it to false to go on.",
    Reason.STOPPING: "{why}; {pods} pods still use their grace period of up to {grace} s to save and end.",
    Reason.TAKEN_BACK: (
        "Queue {queue} has taken its machines back; {pods} pods still use their grace period of up to {grace} s."
    ),
    Reason.LEAVING_QUEUE: (
        "spec.suspend is set: the JobSet is being deleted, so that queue {queue} has its machines back; its pods use "
        "their grace period of up to {grace} s to save and end."
    ),
    Reason.EDITED: "The spec was edited; incarnation {incarnation} of the job starts with it, from its checkpoints.",
    Reason.RETRIED: "spec.retry is {retry}; incarnation {incarnation} of the job starts from its last checkpoint.",
    Reason.REMAKING: "JobSet {name} of the incarnation before is being deleted; the next one is made after it.",
    Reason.RESTARTING: "Restart {number}, {cause} {ready} of {hosts} hosts are ready.",
    Reason.RESTART_PAUSED: (
        "{number} restarts in a row without a newer checkpoint; the next attempt starts at {at}. Last cause: {cause}"
    ),
    Reason.HOSTS_STARTING: "{ready} of {hosts} hosts are ready.",
    Reason.ALL_HOSTS_READY: "All {hosts} hosts are ready.",
    Reason.ENDED: "The job has ended.",
    Reason.JOBSET_REFUSED: "The JobSet cannot be created or changed: {detail}",
    Reason.CREATION_REFUSED: (
        "Pods cannot be created: {detail} The namespace's quota, limits or admission policies have to allow them; "
        "they are tried again all the time."
    ),
    Reason.JOBS_REFUSED: (
        "JobSet cannot create the job's Jobs: {detail} If that names a field, set spec.suspend to true, correct the "
        "field and set suspend to false; Jobs are tried again all the time."
    ),
    Reason.CANNOT_START: "{host} (pod {pod}) cannot start: {detail} {advice}",
    Reason.UNSCHEDULABLE: (
        "Pod {pod} has no node yet: {detail} It starts when machines of that kind are free; if there is to be one, "
        "compare the node pool's labels and taints with spec.accelerator, spec.capacity and spec.nodeSelector."
    ),
    Reason.NO_POOL_FITS: (
        "Pod {pod} has no node, and no node pool that the autoscaler may grow fits it: {detail} Make a pool for "
        "{accelerator}, or correct spec.accelerator, spec.capacity or spec.nodeSelector."
    ),
    Reason.QUOTA_EXCEEDED: "Pod {pod} has no node, as a quota is used up: {detail} Ask for more TPU quota, or wait.",
    Reason.TOPOLOGY_REFUSED: (
        "Pod {pod} has no node, as the cloud refuses the shape: {detail} Correct the node pool or spec.accelerator "
        "({accelerator})."
    ),
    Reason.RESERVATION_UNUSABLE: (
        "Pod {pod} has no node, as the reservation cannot be used: {detail} Correct spec.capacity.reservation or the "
        "reservation."
    ),
    Reason.SCALE_UP_FAILED: "Pod {pod} has no node, as making one failed: {detail} The autoscaler tries again.",
    Reason.SCALE_UP_REQUESTED: (
        "Machines for {accelerator} have been asked for: {detail} This may take minutes to hours; nothing to do."
    ),
    Reason.OUT_OF_RESOURCES: (
        "The zone has no {accelerator} free now: {detail} The autoscaler goes on asking; another zone, a reservation "
        "or spec.capacity may be quicker."
    ),
    Reason.UNBLOCKED: "Pods start.",
    Reason.NO_STEP: (
        "No step since {since} (step {step}, process 0 is in {phase}). See the log of pod {pod}; deleting the pod "
        "restarts the job from its last checkpoint."
    ),
    Reason.NO_REPORT: (
        "Pod {pod} has not answered on /report since {since}. See its log; deleting the pod restarts the job from its "
        "last checkpoint."
    ),
    Reason.PEERS_FINISHED: (
        "Pod {pod} exited with 0 at {since} and others still run, which wait for it. Set suspend to true and back to "
        "false to start all of them from the last checkpoint."
    ),
    Reason.PROGRESSING: "Steps are made.",
    Reason.SAVES_SUCCEED: "No save is failing.",
    Reason.SAVES_FAIL: (
        "No save has succeeded since {since}: {detail} Training goes on; what is newer than step {step} would be lost. "
        "Look at spec.checkpointDir {directory} and the rights on it."
    ),
    Reason.DATA_FLOWS: "Data comes as fast as it is used.",
    Reason.DATA_SLOW: "Steps wait for data{share}: {detail}",
    Reason.NETWORK_POLICY_MADE: "The job has its NetworkPolicy.",
    Reason.NETWORK_POLICY_NAME_TAKEN: (
        "NetworkPolicy {name} exists and was not made for this job, so others can reach its coordinator's port; delete "
        "it, or give the job another name."
    ),
    Reason.FINISHED: "All {hosts} hosts finished.",
    Reason.HOST_FAILED: "The first to fail was {host} (pod {pod}), exit code {meaning}. {advice}{last_lines}",
    Reason.CRASHED_TOO_OFTEN: (
        "{crashes} crashes without a newer checkpoint, and spec.restarts.crashes allows {limit}. {cause} {advice}"
    ),
    Reason.UNEXPLAINED_TOO_OFTEN: (
        "{restarts} restarts without a newer checkpoint and without a known cause, and {limit} are allowed. Look for a "
        "program that exits with code 75 by itself, or for somebody who deletes Jobs; then edit the job's spec, or "
        "delete this job and apply it again; its checkpoints are kept."
    ),
    Reason.DEADLINE_EXCEEDED: (
        "spec.activeDeadlineSeconds ({limit} s) is over since {since}. Its checkpoints are kept; to go on, raise it "
        "and spec.retry."
    ),
    Reason.JOBSET_FAILED: "The JobSet failed and no host's own words are left: {detail}",
    Reason.JOBSET_DELETED: (
        "JobSet {name} was deleted before it ended, by somebody else. Delete this job and apply it again to go on; "
        "its checkpoints are kept."
    ),
}


def ended(text: str) -> str:
    """Somebody else's words, so that a sentence may follow them."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def sentence(reason: Reason, **values: object) -> str:
    """The message of a reason, at most `MESSAGE_LENGTH` characters."""
    text = SENTENCES[reason].format(**values).strip()
    if len(text) <= MESSAGE_LENGTH:
        return text
    half = MESSAGE_LENGTH // 2 - 3
    return f"{text[:half]} […] {text[-half:]}"


def set_condition(
    conditions: Sequence[Mapping[str, Any]],
    kind: Type,
    *,
    status: bool,
    reason: Reason,
    message: str,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """The conditions with this one set, in the same order; its transition time moves only when its status does."""
    previous = next((c for c in conditions if c["type"] == kind), None)
    value = str(status)
    changed_at = previous["lastTransitionTime"] if previous and previous["status"] == value else format_time(now)
    condition = {
        "type": str(kind),
        "status": value,
        "reason": str(reason),
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": changed_at,
    }
    if previous is None:
        return [*map(dict, conditions), condition]
    return [condition if c["type"] == kind else dict(c) for c in conditions]


def condition(status: Mapping[str, Any], kind: Type) -> Mapping[str, Any] | None:
    """A condition of a status, or None."""
    return next((c for c in status.get("conditions") or [] if c["type"] == kind), None)
