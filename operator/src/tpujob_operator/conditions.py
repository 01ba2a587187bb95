"""Everything that a TpuTrainingJob's status can say: condition types, reasons and their sentences, in one list.

Reasons are part of the interface: scripts match them. Sentences say what is, and where somebody has to act, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from tpujob_operator.observed import format_time
from tpujob_operator.resource_status import Phase

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
    HOSTS_STARTING = "HostsStarting"
    ALL_HOSTS_READY = "AllHostsReady"
    ENDED = "Ended"

    JOBSET_REFUSED = "JobSetRefused"
    CREATION_REFUSED = "CreationRefused"
    CANNOT_START = "CannotStart"
    UNSCHEDULABLE = "Unschedulable"
    UNBLOCKED = "Unblocked"

    FINISHED = "Finished"
    HOST_FAILED = "HostFailed"
    CRASHED_TOO_OFTEN = "CrashedTooOften"
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
    Reason.HOSTS_STARTING: "{ready} of {hosts} hosts are ready.",
    Reason.ALL_HOSTS_READY: "All {hosts} hosts are ready.",
    Reason.ENDED: "The job has ended.",
    Reason.JOBSET_REFUSED: "The JobSet cannot be created: {detail}",
    Reason.CREATION_REFUSED: "Pods cannot be created: {detail}",
    Reason.CANNOT_START: "Pod {pod} cannot start: {detail}",
    Reason.UNSCHEDULABLE: "Pod {pod} has no node yet: {detail}",
    Reason.UNBLOCKED: "Pods start.",
    Reason.FINISHED: "All {hosts} hosts finished.",
    Reason.HOST_FAILED: "The first to fail was {host} (pod {pod}), exit code {meaning}. {last_lines}",
    Reason.CRASHED_TOO_OFTEN: (
        "{crashes} crashes without a newer checkpoint, and spec.restarts.crashes allows {limit}. {cause} "
        "Mend it, delete this job and apply it again; its checkpoints are kept."
    ),
    Reason.JOBSET_FAILED: "The JobSet failed and no host's own words are left: {detail}",
    Reason.JOBSET_DELETED: (
        "JobSet {name} was deleted before it ended, by somebody else. Delete this job and apply it again to go on; "
        "its checkpoints are kept."
    ),
}


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
