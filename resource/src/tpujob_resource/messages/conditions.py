# ruff: noqa: E501 - tables, one line each
"""Everything that a TpuTrainingJob's status can say: condition types, reasons, their sentences and advice, in one list.

Reasons are part of the interface: scripts match them. Sentences say what is, and where somebody has to act, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

from tpujob_resource.models.status import Condition, Phase, Status

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
    """A NetworkPolicy of the job's own closes its ports to others; false while somebody else's has its name, and where
    pods are on the network of their nodes."""
    FULL_SIZE = "FullSize"
    """The job has all slices that it asks for; false while it goes on with fewer. Only with spec.minSlices."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Reason(StrEnum):
    """Why a condition is as it is; `SENTENCES` has the words."""

    ACCEPTED = "Accepted"
    REJECTED = "Rejected"

    CREATING = "Creating"
    NAME_TAKEN = "NameTaken"
    SERVICE_NAME_TAKEN = "ServiceNameTaken"
    LEFTOVER = "Leftover"
    IN_QUEUE = "InQueue"
    QUEUE_UNUSABLE = "QueueUnusable"
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    TAKEN_BACK = "TakenBack"
    LEAVING_QUEUE = "LeavingQueue"
    EDITED = "Edited"
    RETRIED = "Retried"
    REMAKING = "Remaking"
    RESTARTING = "Restarting"
    RESTART_PAUSED = "RestartPaused"
    NODE_AVOIDED = "NodeAvoided"
    AVOIDANCE_LIFTED = "AvoidanceLifted"
    SHRUNK = "Shrunk"
    GROWN = "Grown"
    HOSTS_STARTING = "HostsStarting"
    ALL_HOSTS_READY = "AllHostsReady"
    ENDED = "Ended"

    JOBSET_REFUSED = "JobSetRefused"
    JOBSET_NOT_INSTALLED = "JobSetNotInstalled"
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

    ALL_SLICES = "AllSlices"
    SLICES_MISSING = "SlicesMissing"

    NETWORK_POLICY_MADE = "NetworkPolicyMade"
    NETWORK_POLICY_NAME_TAKEN = "NetworkPolicyNameTaken"
    HOST_NETWORK = "HostNetwork"

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
    Reason.SERVICE_NAME_TAKEN: (
        "Service {name} exists and was not made for this job's JobSet, so hosts would not find each other by it; "
        "delete it, or give the job another name. One that an earlier JobSet has left goes by itself."
    ),
    Reason.LEFTOVER: "JobSet {name} of an earlier job of this name is still being deleted; this one starts after it.",
    Reason.IN_QUEUE: "Waiting for queue {queue} to admit the job{since}: {detail}",
    Reason.QUEUE_UNUSABLE: "Queue {queue} cannot admit the job: {detail}",
    Reason.SUSPENDED: "Suspended by spec.suspend; set it to false to go on.",
    Reason.STOPPING: "{why}; {pods} pods still use their grace period of up to {grace} s to save and end.",
    Reason.TAKEN_BACK: (
        "Queue {queue} has taken its machines back{why}; {pods} pods still use their grace period of up to {grace} s."
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
    Reason.NODE_AVOIDED: (
        "The job crashed {failures} times on node {node}, last with exit code {meaning}. Incarnation {incarnation} "
        "starts from its last checkpoint on machines without the label {label}."
    ),
    Reason.AVOIDANCE_LIFTED: (
        "No machine was found for {seconds} s outside of {labels}, where the job crashed before. Incarnation "
        "{incarnation} may use these again: {detail}"
    ),
    Reason.SHRUNK: (
        "Machines for {missing} of {before} slices have been missing since {since}. Incarnation {incarnation} goes on "
        "from the last checkpoint with {after} slices (spec.minSlices {least}): {detail}"
    ),
    Reason.GROWN: (
        "{why} The hosts save and end; incarnation {incarnation} then goes on from that checkpoint with {after} slices "
        "instead of {before}."
    ),
    Reason.HOSTS_STARTING: "{ready} of {hosts} hosts are ready.",
    Reason.ALL_HOSTS_READY: "All {hosts} hosts are ready.",
    Reason.ENDED: "The job has ended.",
    Reason.JOBSET_REFUSED: "The JobSet cannot be created or changed: {detail}",
    Reason.JOBSET_NOT_INSTALLED: (
        "The cluster does not serve {version}: JobSet, which runs the job's pods, is not installed, or in another "
        "version. Have its administrator install JobSet; the job then starts by itself."
    ),
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
    Reason.ALL_SLICES: "The job has all its {wanted} slices.",
    Reason.SLICES_MISSING: "The job has {slices} of {wanted} slices{since}. It grows when machines for more are free{earliest}.",
    Reason.NETWORK_POLICY_MADE: "The job has its NetworkPolicy.",
    Reason.NETWORK_POLICY_NAME_TAKEN: (
        "NetworkPolicy {name} exists and was not made for this job, so others can reach its coordinator's port; delete "
        "it, or give the job another name."
    ),
    Reason.HOST_NETWORK: (
        "The pods are on the network of their nodes (jobs.multislice.hostNetwork of the chart), where no NetworkPolicy "
        "applies: whoever reaches the nodes reaches the job's ports, among them 8476 and 8080, which ask nobody who "
        "they are. Close them with a firewall of the nodes' network, or use jobs.multislice.claimTemplate instead."
    ),
    Reason.FINISHED: "All {hosts} hosts finished.",
    Reason.HOST_FAILED: "The first to fail was {host} (pod {pod}), exit code {meaning}. {advice}{last_lines}",
    Reason.CRASHED_TOO_OFTEN: (
        "{crashes} crashes without a newer checkpoint, and spec.restarts.crashes allows {limit}. {cause} {advice}"
    ),
    Reason.UNEXPLAINED_TOO_OFTEN: (
        "{restarts} restarts without a newer checkpoint and without a known cause, and {limit} are allowed. Look for a "
        "program that exits with code 75 by itself, or for somebody who deletes Jobs; then raise spec.retry, edit "
        "the job's spec, or delete this job and apply it again; its checkpoints are kept."
    ),
    Reason.DEADLINE_EXCEEDED: (
        "spec.activeDeadlineSeconds ({limit} s) is over since {since}. Its checkpoints are kept; to go on, raise it "
        "and spec.retry."
    ),
    Reason.JOBSET_FAILED: "The JobSet failed and no host's own words are left: {detail}",
    Reason.JOBSET_DELETED: (
        "JobSet {name} was deleted before it ended, by somebody else. To go on, raise spec.retry, edit the job's "
        "spec, or delete this job and apply it again; its checkpoints are kept."
    ),
}


NOTHING = "Nothing; this passes by itself."

ADVICE: Mapping[Reason, str] = {
    Reason.ACCEPTED: "Nothing.",
    Reason.REJECTED: "Fix each field that the message names; `kubectl edit ttj NAME` is enough.",
    Reason.CREATING: "Nothing. If it lasts longer than a minute, see the operator's log.",
    Reason.NAME_TAKEN: "`kubectl get jobset NAME -o yaml` shows whose it is. Delete it, or use another `metadata.name`.",
    Reason.SERVICE_NAME_TAKEN: "`kubectl get service NAME -o yaml` shows whose it is. Delete it, or use another `metadata.name`.",
    Reason.LEFTOVER: "Nothing. If it lasts longer than the old job's grace period, see `kubectl get pods` for one that hangs.",
    Reason.IN_QUEUE: "Nothing, or ask for more quota: the message has Kueue's words, since when the job waits, and how many workloads are ahead of it.",
    Reason.QUEUE_UNUSABLE: "Create the LocalQueue or ClusterQueue that the message names, or start it again; ask whoever runs Kueue.",
    Reason.SUSPENDED: "`tpujob resume NAME` when the job is to go on.",
    Reason.STOPPING: NOTHING,
    Reason.TAKEN_BACK: "Nothing: a job of higher priority, or a returned quota, took the machines. The job queues again.",
    Reason.LEAVING_QUEUE: NOTHING,
    Reason.EDITED: NOTHING,
    Reason.REMAKING: NOTHING,
    Reason.RESTARTING: "Read the cause in the message. If it repeats, `tpujob logs NAME` shows the host that failed first.",
    Reason.RESTART_PAUSED: "Nothing; the pause grows while restarts bring no progress. The message has the cause of the last one.",
    Reason.NODE_AVOIDED: "Look at the node: its events, its kernel log, its chips. The job goes on by itself; `spec.retry` or an edit forgets what it avoids.",
    Reason.AVOIDANCE_LIFTED: "Repair the node, or add a machine of the kind; the job goes on by itself.",
    Reason.RETRIED: NOTHING,
    Reason.SHRUNK: "Nothing; see why machines are missing. The job grows by itself when they are free.",
    Reason.GROWN: NOTHING,
    Reason.HOSTS_STARTING: "Nothing for some minutes. A pod that stays in ContainerCreating: `kubectl describe pod`.",
    Reason.ALL_HOSTS_READY: "Nothing.",
    Reason.ENDED: "Nothing.",
    Reason.JOBSET_NOT_INSTALLED: "Ask whoever runs the cluster to install JobSet (jobset.sigs.k8s.io); the job starts within a minute after that.",
    Reason.JOBSET_REFUSED: "The message has the API server's words: a webhook or a policy refuses it. Change the policy or the field.",
    Reason.JOBS_REFUSED: "The message has the API server's words about the JobSet's Jobs: a webhook, a policy or a quota of Jobs refuses them.",
    Reason.CREATION_REFUSED: "`kubectl get resourcequota,limitrange` in the namespace, and its pod security label; have them allow the pods.",
    Reason.CANNOT_START: "ImagePullBackOff: check the image's name and `imagePullSecrets`. CreateContainerConfigError: a Secret or ConfigMap of `env` is missing.",
    Reason.UNSCHEDULABLE: "`tpujob doctor` lists TPU machines by kind; compare with `spec.accelerator`, `nodeSelector`, `tolerations`.",
    Reason.NO_POOL_FITS: "Make a node pool for the accelerator (docs/gke.md), or correct accelerator, capacity or nodeSelector.",
    Reason.QUOTA_EXCEEDED: "Ask for TPU quota in the project and zone, or stop another job.",
    Reason.TOPOLOGY_REFUSED: "The pool's topology and the job's differ: correct the node pool or `spec.accelerator`.",
    Reason.RESERVATION_UNUSABLE: "Check name, project and zone of the reservation, and that it is not used up.",
    Reason.SCALE_UP_FAILED: "Nothing at first. If it repeats, another zone or `spec.capacity` helps.",
    Reason.SCALE_UP_REQUESTED: "Nothing; machines may take hours.",
    Reason.OUT_OF_RESOURCES: "Wait, or use another zone, a reservation, flex-start or spot.",
    Reason.UNBLOCKED: "Nothing.",
    Reason.NO_STEP: "`tpujob logs NAME`; deleting the pod that hangs restarts the job from its last checkpoint.",
    Reason.NO_REPORT: "See the pod's log and node. A network policy of yours must let the operator reach port 9432.",
    Reason.PEERS_FINISHED: "`tpujob stop NAME`, then `tpujob resume NAME`. In a program of yours, all processes must end together.",
    Reason.PROGRESSING: "Nothing.",
    Reason.SAVES_SUCCEED: "Nothing.",
    Reason.SAVES_FAIL: "The message has the storage's words. Restore rights or room; training goes on meanwhile.",
    Reason.DATA_FLOWS: "Nothing.",
    Reason.DATA_SLOW: "`tpujob data inspect` says what makes the data slow; a rate limit of the storage passes by itself.",
    Reason.ALL_SLICES: "Nothing.",
    Reason.SLICES_MISSING: "Nothing, or find machines. For node pools that an autoscaler makes, set `spec.growAfterSeconds`.",
    Reason.NETWORK_POLICY_MADE: "Nothing.",
    Reason.NETWORK_POLICY_NAME_TAKEN: "Delete or rename the NetworkPolicy that the message names; until then the job's ports are open.",
    Reason.HOST_NETWORK: "Close the job's ports with a firewall of the nodes' network, or have the administrator use `jobs.multislice.claimTemplate` instead (docs/gke.md).",
    Reason.FINISHED: "Nothing. The checkpoints are in `spec.checkpointDir`.",
    Reason.HOST_FAILED: "Go by the exit code in the message.",
    Reason.CRASHED_TOO_OFTEN: "Find the cause in the message and in `tpujob logs`, fix it, then raise `spec.retry` or edit the job's spec to start it again.",
    Reason.UNEXPLAINED_TOO_OFTEN: "See whether the operator was away, and the nodes' events at those times; raise `spec.retry` to start it again.",
    Reason.DEADLINE_EXCEEDED: "Submit the job again with more time; it goes on from its checkpoints.",
    Reason.JOBSET_FAILED: "`kubectl describe jobset NAME`; logs of pods that are gone are in your log collector.",
    Reason.JOBSET_DELETED: "Raise `spec.retry`; the job goes on from its checkpoints.",
}  # fmt: skip
"""What to do about each reason; a table of the documentation is made of it."""


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
    conditions: Sequence[Condition],
    kind: Type,
    *,
    status: bool,
    reason: Reason,
    message: str,
    generation: int,
    now: datetime,
) -> list[Condition]:
    """The conditions with this one set, in the same order; its transition time moves only when its status does."""
    previous = next((c for c in conditions if c.type == kind), None)
    value: Literal["True", "False"] = "True" if status else "False"
    is_unchanged = previous is not None and previous.status == value
    condition = Condition(
        type=str(kind),
        status=value,
        reason=str(reason),
        message=message,
        observed_generation=generation,
        last_transition_time=previous.last_transition_time if previous and is_unchanged else now,
    )
    if previous is None:
        return [*conditions, condition]
    return [condition if c.type == kind else c for c in conditions]


def condition(status: Status, kind: Type) -> Condition | None:
    """A condition of a status, or None."""
    return next((c for c in status.conditions or [] if c.type == kind), None)
