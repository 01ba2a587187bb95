# ruff: noqa: E501 - tables, one line each
"""The conditions of a TpuTrainingJob's status: their types, and one row for each reason.

Reasons are part of the interface: scripts match them. A message states the fact and, if the user must act, what to do.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

from tpujob_resource.models.status import Condition, Status

MESSAGE_LENGTH = 2000
"""Most characters of a message; a longer one is cut in the middle, because its first and last lines matter most."""


class Type(StrEnum):
    """Condition types. Types that do not apply yet are absent; `kubectl wait --for=condition=Succeeded` works."""

    VALID = "Valid"
    RUNNING = "Running"
    BLOCKED = "Blocked"
    """Pods cannot be created or started, and waiting alone will not change that."""
    STALLED = "Stalled"
    """All hosts run, but make no progress."""
    CHECKPOINT_HEALTHY = "CheckpointHealthy"
    """Saves succeed; false while they fail but training continues."""
    DATA_HEALTHY = "DataHealthy"
    """Data arrives as fast as it is used; false while its source is slow or fails."""
    ISOLATED = "Isolated"
    """The job's NetworkPolicy closes its ports to others; false while another object has its name, or if pods use the
    host network."""
    FULL_SIZE = "FullSize"
    """The job has all slices that it requests; false while it runs with fewer. Only with spec.minSlices."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


NOTHING = "Nothing; this passes by itself."


class Reason(StrEnum):
    """The reason of a condition. Each row: the word for scripts, the message, what to do.

    The documentation's table of reasons is generated from these rows.
    """

    template: str
    """The message; `sentence` replaces names in braces."""
    advice: str
    """What to do about it."""

    def __new__(cls, word: str, template: str, advice: str) -> Self:
        """Makes the member of a row."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.template = template
        reason.advice = advice
        return reason

    ACCEPTED = (
        "Accepted",
        "The spec is complete and possible.",
        "Nothing.",
    )
    REJECTED = (
        "Rejected",
        "{problems}",
        "Fix each field that the message names; `kubectl edit ttj NAME` is enough.",
    )

    CREATING = (
        "Creating",
        "The JobSet is being created.",
        "Nothing. If it lasts longer than a minute, see the operator's log.",
    )
    NAME_TAKEN = (
        "NameTaken",
        "JobSet {name} exists and was not made for this job; delete it, or give the job another name.",
        "`kubectl get jobset NAME -o yaml` shows whose it is. Delete it, or use another `metadata.name`.",
    )
    SERVICE_NAME_TAKEN = (
        "ServiceNameTaken",
        "Service {name} exists and was not made for this job's JobSet, so hosts would not find each other by it; delete it, or give the job another name. One that an earlier JobSet has left goes by itself.",
        "`kubectl get service NAME -o yaml` shows whose it is. Delete it, or use another `metadata.name`.",
    )
    LEFTOVER = (
        "Leftover",
        "JobSet {name} of an earlier job of this name is still being deleted; this one starts after it.",
        "Nothing. If it lasts longer than the old job's grace period, see `kubectl get pods` for one that hangs.",
    )
    IN_QUEUE = (
        "InQueue",
        "Waiting for queue {queue} to admit the job{since}: {detail}",
        "Nothing, or ask for more quota: the message has Kueue's words, since when the job waits, and how many workloads are ahead of it.",
    )
    QUEUE_UNUSABLE = (
        "QueueUnusable",
        "Queue {queue} cannot admit the job: {detail}",
        "Create the LocalQueue or ClusterQueue that the message names, or start it again; ask whoever runs Kueue.",
    )
    SUSPENDED = (
        "Suspended",
        "Suspended by spec.suspend; set it to false to go on.",
        "`tpujob resume NAME` when the job is to go on.",
    )
    STOPPING = (
        "Stopping",
        "{why}; {pods} pods still use their grace period of up to {grace} s to save and end.",
        NOTHING,
    )
    TAKEN_BACK = (
        "TakenBack",
        "Queue {queue} has taken its machines back{why}; {pods} pods still use their grace period of up to {grace} s.",
        "Nothing: a job of higher priority, or a returned quota, took the machines. The job queues again.",
    )
    LEAVING_QUEUE = (
        "LeavingQueue",
        "spec.suspend is set: the JobSet is being deleted, so that queue {queue} has its machines back; its pods use their grace period of up to {grace} s to save and end.",
        NOTHING,
    )
    EDITED = (
        "Edited",
        "The spec was edited; incarnation {incarnation} of the job starts with it, from its checkpoints.",
        NOTHING,
    )
    RETRIED = (
        "Retried",
        "spec.retry is {retry}; incarnation {incarnation} of the job starts from its last checkpoint.",
        NOTHING,
    )
    REMAKING = (
        "Remaking",
        "JobSet {name} of the incarnation before is being deleted; the next one is made after it.",
        NOTHING,
    )
    RESTARTING = (
        "Restarting",
        "Restart {number}, {cause} {ready} of {hosts} hosts are ready.",
        "Read the cause in the message. If it repeats, `tpujob logs NAME` shows the host that failed first.",
    )
    POD_REPLACED = (
        "PodReplaced",
        "{cause} Another pod takes its place; the others wait for it in theirs, up to {seconds} s. {ready} of {hosts} hosts are ready.",
        "Wait; if the new pod does not start, `tpujob describe NAME` shows why. After `spec.startupSeconds` all pods are made anew.",
    )
    POD_NOT_REPLACED = (
        "PodNotReplaced",
        "{cause} JobSet refuses the pod that would take its place as long as {pods} of its slice, which failed before, is there; `kubectl delete pod {pods}` helps. The others wait for it up to {seconds} s. {ready} of {hosts} hosts are ready.",
        "Delete the failed pod that the message names. After `spec.startupSeconds` all pods are made anew. Releases of JobSet after 0.12 have no such pod in the way.",
    )
    RESTARTED_IN_PLACE = (
        "RestartedInPlace",
        "Restart {number} in the same pods, {cause}",
        "Read the cause in the message; `tpujob describe NAME` lists the last of these attempts.",
    )
    RESTART_PAUSED = (
        "RestartPaused",
        "{number} restarts in a row without a newer checkpoint; the next attempt starts at {at}. Last cause: {cause}",
        "Nothing; the pause grows while restarts bring no progress. The message has the cause of the last one.",
    )
    NODE_AVOIDED = (
        "NodeAvoided",
        "The job crashed {failures} times on node {node}, last with exit code {meaning}. Incarnation {incarnation} starts from its last checkpoint on machines without the label {label}.",
        "Look at the node: its events, its kernel log, its chips. The job goes on by itself; `spec.retry` or an edit forgets what it avoids.",
    )
    AVOIDANCE_LIFTED = (
        "AvoidanceLifted",
        "No machine was found for {seconds} s outside of {labels}, where the job crashed before. Incarnation {incarnation} may use these again: {detail}",
        "Repair the node, or add a machine of the kind; the job goes on by itself.",
    )
    SHRUNK = (
        "Shrunk",
        "Machines for {missing} of {before} slices have been missing since {since}. Incarnation {incarnation} goes on from the last checkpoint with {after} slices (spec.minSlices {least}): {detail}",
        "Nothing; see why machines are missing. The job grows by itself when they are free.",
    )
    QUEUED_SMALLER = (
        "QueuedSmaller",
        "Queue {queue} has not admitted {before} slices since {since}. Incarnation {incarnation} waits there with {after} (spec.minSlices {least}): {detail}",
        "Nothing, or ask for more quota. The job grows by itself when there is some.",
    )
    GROWN = (
        "Grown",
        "{why} The hosts save and end; incarnation {incarnation} then goes on from that checkpoint with {after} slices instead of {before}.",
        NOTHING,
    )
    HOSTS_STARTING = (
        "HostsStarting",
        "{ready} of {hosts} hosts are ready.",
        "Nothing for some minutes. A pod that stays in ContainerCreating: `kubectl describe pod`.",
    )
    ALL_HOSTS_READY = (
        "AllHostsReady",
        "All {hosts} hosts are ready.",
        "Nothing.",
    )
    ENDED = (
        "Ended",
        "The job has ended.",
        "Nothing.",
    )

    JOBSET_REFUSED = (
        "JobSetRefused",
        "The JobSet cannot be created or changed: {detail}",
        "The message has the API server's words: a webhook or a policy refuses it. Change the policy or the field.",
    )
    JOBSET_NOT_INSTALLED = (
        "JobSetNotInstalled",
        "The cluster does not serve {version}: JobSet, which runs the job's pods, is not installed, or in another version. Have its administrator install JobSet; the job then starts by itself.",
        "Ask whoever runs the cluster to install JobSet (jobset.sigs.k8s.io); the job starts within a minute after that.",
    )
    CREATION_REFUSED = (
        "CreationRefused",
        "Pods cannot be created: {detail} The namespace's quota, limits or admission policies have to allow them; they are tried again all the time.",
        "`kubectl get resourcequota,limitrange` in the namespace, and its pod security label; have them allow the pods.",
    )
    JOBS_REFUSED = (
        "JobsRefused",
        "JobSet cannot create the job's Jobs: {detail} If that names a field, set spec.suspend to true, correct the field and set suspend to false; Jobs are tried again all the time.",
        "The message has the API server's words about the JobSet's Jobs: a webhook, a policy or a quota of Jobs refuses them.",
    )
    CANNOT_START = (
        "CannotStart",
        "{host} (pod {pod}) cannot start: {detail} {advice}",
        "ImagePullBackOff: check the image's name and `imagePullSecrets`. CreateContainerConfigError: a Secret or ConfigMap of `env` is missing.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "Pod {pod} has no node yet: {detail} It starts when machines of that kind are free; if there is to be one, compare the node pool's labels and taints with spec.accelerator, spec.capacity and spec.nodeSelector.",
        "`tpujob doctor` lists TPU machines by kind; compare with `spec.accelerator`, `nodeSelector`, `tolerations`.",
    )
    NO_POOL_FITS = (
        "NoPoolFits",
        "Pod {pod} has no node, and no node pool that the autoscaler may grow fits it: {detail} Make a pool for {accelerator}, or correct spec.accelerator, spec.capacity or spec.nodeSelector.",
        "Make a node pool for the accelerator (docs/gke.md), or correct accelerator, capacity or nodeSelector.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "Pod {pod} has no node, as a quota is used up: {detail} Ask for more TPU quota, or wait.",
        "Ask for TPU quota in the project and zone, or stop another job.",
    )
    TOPOLOGY_REFUSED = (
        "TopologyRefused",
        "Pod {pod} has no node, as the cloud refuses the shape: {detail} Correct the node pool or spec.accelerator ({accelerator}).",
        "The pool's topology and the job's differ: correct the node pool or `spec.accelerator`.",
    )
    RESERVATION_UNUSABLE = (
        "ReservationUnusable",
        "Pod {pod} has no node, as the reservation cannot be used: {detail} Correct spec.capacity.reservation or the reservation.",
        "Check name, project and zone of the reservation, and that it is not used up.",
    )
    SCALE_UP_FAILED = (
        "ScaleUpFailed",
        "Pod {pod} has no node, as making one failed: {detail} The autoscaler tries again.",
        "Nothing at first. If it repeats, another zone or `spec.capacity` helps.",
    )
    SCALE_UP_REQUESTED = (
        "ScaleUpRequested",
        "Machines for {accelerator} have been asked for: {detail} This may take minutes to hours; nothing to do.",
        "Nothing; machines may take hours.",
    )
    OUT_OF_RESOURCES = (
        "OutOfResources",
        "The zone has no {accelerator} free now: {detail} The autoscaler goes on asking; another zone, a reservation or spec.capacity may be quicker.",
        "Wait, or use another zone, a reservation, flex-start or spot.",
    )
    UNBLOCKED = (
        "Unblocked",
        "Pods start.",
        "Nothing.",
    )

    NO_STEP = (
        "NoStep",
        "No step since {since} (step {step}, process 0 is in {phase}). See the log of pod {pod}; deleting the pod restarts the job from its last checkpoint.",
        "`tpujob logs NAME`; deleting the pod that hangs restarts the job from its last checkpoint.",
    )
    NO_REPORT = (
        "NoReport",
        "Pod {pod} has not answered on /report since {since}. See its log; deleting the pod restarts the job from its last checkpoint.",
        "See the pod's log and node. A network policy of yours must let the operator reach port 9432.",
    )
    PEERS_FINISHED = (
        "PeersFinished",
        "Pod {pod} exited with 0 at {since} and others still run, which wait for it. Set suspend to true and back to false to start all of them from the last checkpoint.",
        "`tpujob stop NAME`, then `tpujob resume NAME`. In a program of yours, all processes must end together.",
    )
    PROGRESSING = (
        "Progressing",
        "Steps are made.",
        "Nothing.",
    )

    SAVES_SUCCEED = (
        "SavesSucceed",
        "No save is failing.",
        "Nothing.",
    )
    SAVES_FAIL = (
        "SavesFail",
        "No save has succeeded since {since}: {detail} Training goes on; what is newer than step {step} would be lost. Look at spec.checkpointDir {directory} and the rights on it.",
        "The message has the storage's words. Restore rights or room; training goes on meanwhile.",
    )
    DATA_FLOWS = (
        "DataFlows",
        "Data comes as fast as it is used.",
        "Nothing.",
    )
    DATA_SLOW = (
        "DataSlow",
        "Steps wait for data{share}: {detail}",
        "`tpujob data inspect` says what makes the data slow; a rate limit of the storage passes by itself.",
    )

    ALL_SLICES = (
        "AllSlices",
        "The job has all its {wanted} slices.",
        "Nothing.",
    )
    SLICES_MISSING = (
        "SlicesMissing",
        "The job has {slices} of {wanted} slices{since}. It grows when machines for more are free{earliest}.",
        "Nothing, or find machines. For node pools that an autoscaler makes, set `spec.growAfterSeconds`.",
    )

    NETWORK_POLICY_MADE = (
        "NetworkPolicyMade",
        "The job has its NetworkPolicy.",
        "Nothing.",
    )
    NETWORK_POLICY_NAME_TAKEN = (
        "NetworkPolicyNameTaken",
        "NetworkPolicy {name} exists and was not made for this job, so others can reach its coordinator's port; delete it, or give the job another name.",
        "Delete or rename the NetworkPolicy that the message names; until then the job's ports are open.",
    )
    HOST_NETWORK = (
        "HostNetwork",
        "The pods are on the network of their nodes (jobs.multislice.hostNetwork of the chart), where no NetworkPolicy applies: whoever reaches the nodes reaches the job's ports, among them 8476 and 8080, which ask nobody who they are. Close them with a firewall of the nodes' network, or use jobs.multislice.claimTemplate instead.",
        "Close the job's ports with a firewall of the nodes' network, or have the administrator use `jobs.multislice.claimTemplate` instead (docs/gke.md).",
    )

    FINISHED = (
        "Finished",
        "All {hosts} hosts finished.",
        "Nothing. The checkpoints are in `spec.checkpointDir`.",
    )
    HOST_FAILED = (
        "HostFailed",
        "The first to fail was {host} (pod {pod}), exit code {meaning}. {advice}{last_lines}",
        "Go by the exit code in the message.",
    )
    CRASHED_TOO_OFTEN = (
        "CrashedTooOften",
        "{crashes} crashes without a newer checkpoint, and spec.restarts.crashes allows {limit}. {cause} {advice}",
        "Find the cause in the message and in `tpujob logs`, fix it, then raise `spec.retry` or edit the job's spec to start it again.",
    )
    UNEXPLAINED_TOO_OFTEN = (
        "UnexplainedTooOften",
        "{restarts} restarts without a newer checkpoint and without a known cause, and {limit} are allowed. Look for a program that exits with code 75 by itself, or for somebody who deletes Jobs; then raise spec.retry, edit the job's spec, or delete this job and apply it again; its checkpoints are kept.",
        "See whether the operator was away, and the nodes' events at those times; raise `spec.retry` to start it again.",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "spec.activeDeadlineSeconds ({limit} s) is over since {since}. Its checkpoints are kept; to go on, raise it and spec.retry.",
        "Submit the job again with more time; it goes on from its checkpoints.",
    )
    JOBSET_FAILED = (
        "JobSetFailed",
        "The JobSet failed and no host's own words are left: {detail}",
        "`kubectl describe jobset NAME`; logs of pods that are gone are in your log collector.",
    )
    JOBSET_DELETED = (
        "JobSetDeleted",
        "JobSet {name} was deleted before it ended, by somebody else. To go on, raise spec.retry, edit the job's spec, or delete this job and apply it again; its checkpoints are kept.",
        "Raise `spec.retry`; the job goes on from its checkpoints.",
    )


def ended(text: str) -> str:
    """A quoted message with a full stop, so that a sentence may follow it."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def sentence(reason: Reason, **values: object) -> str:
    """The message of a reason, of at most `MESSAGE_LENGTH` characters."""
    text = reason.template.format(**values).strip()
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
    """The conditions with this one set, in the same order; its transition time changes only with its status."""
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
    """A condition of a status; None: the status does not have it."""
    return next((c for c in status.conditions or [] if c.type == kind), None)
