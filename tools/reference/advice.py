# ruff: noqa: E501 - a table, one line each
"""What to do about each exit code and each reason, for people who see one."""

from __future__ import annotations

from tpujob_operator.api.conditions import Reason

EXIT_CODES: dict[int, tuple[str, str]] = {
    0: ("Succeeded, once all processes say so.", "Nothing."),
    69: ("Restarted, charged as a crash.", "End the process that the message names, or use another host."),
    75: ("Restarted without charge, or Suspended if that was asked for.", "Nothing; the next attempt resumes."),
    76: (
        "Failed, never retried.",
        "Lower `optimizer.learningRate` or `clipNorm`, or look at the data of the steps that the message names.",
    ),
    77: (
        "Failed, never retried.",
        "Check the spelling of the path, and let the pods' service account read it (and write, for `checkpointDir`).",
    ),
    78: ("Failed, never retried.", "Fix the field that the message names and submit the job again."),
    79: (
        "Restarted, charged as a crash.",
        "Read the stacks of the process that the message names: is it a read that hangs, or a step that needs a larger `watchdog.stepSeconds`?",
    ),
    80: (
        "Restarted; free when the node of a missing process is gone.",
        "See why the pods of the named processes did not start: `tpujob describe NAME`.",
    ),
}
"""Code: what happens next, what to do."""

OTHER_CODES: dict[str, tuple[str, str, str]] = {
    "1": ("an exception, or another process was lost", "Restarted, charged by cause.", "Read the message and that process's log."),
    "134": ("aborted: an assertion in C++, or JAX lost its coordinator", "Restarted, charged by cause.", "Look for the process that ended first."),
    "137": ("killed", "Restarted, charged by cause.", "With reason OOMKilled, raise `spec.resources.limits.memory` or lower `data.bufferBytes`; else see the node's events."),
    "139": ("segmentation fault", "Restarted, charged by cause.", "The log has the Python stacks; compare library versions with the image that worked."),
    "143": ("ended by SIGTERM, without the trainer's own ending", "Restarted; free when Kubernetes evicted the pod.", "Nothing, unless it repeats."),
}  # fmt: skip

NOTHING = "Nothing; this passes by itself."

REASONS: dict[Reason, str] = {
    Reason.ACCEPTED: "Nothing.",
    Reason.REJECTED: "Fix each field that the message names; `kubectl edit ttj NAME` is enough.",
    Reason.CREATING: "Nothing. If it lasts longer than a minute, see the operator's log.",
    Reason.NAME_TAKEN: "`kubectl get jobset NAME -o yaml` shows whose it is. Delete it, or use another `metadata.name`.",
    Reason.LEFTOVER: "Nothing. If it lasts longer than the old job's grace period, see `kubectl get pods` for one that hangs.",
    Reason.IN_QUEUE: "`kubectl describe workload` shows what Kueue waits for: quota, or other jobs before this one.",
    Reason.SUSPENDED: "`tpujob resume NAME` when the job is to go on.",
    Reason.STOPPING: NOTHING,
    Reason.TAKEN_BACK: "Nothing: a job of higher priority, or a returned quota, took the machines. The job queues again.",
    Reason.LEAVING_QUEUE: NOTHING,
    Reason.EDITED: NOTHING,
    Reason.REMAKING: NOTHING,
    Reason.RESTARTING: "Read the cause in the message. If it repeats, `tpujob logs NAME` shows the host that failed first.",
    Reason.RESTART_PAUSED: "Nothing; the pause grows while restarts bring no progress. The message has the cause of the last one.",
    Reason.RETRIED: NOTHING,
    Reason.HOSTS_STARTING: "Nothing for some minutes. A pod that stays in ContainerCreating: `kubectl describe pod`.",
    Reason.ALL_HOSTS_READY: "Nothing.",
    Reason.ENDED: "Nothing.",
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
    Reason.NETWORK_POLICY_MADE: "Nothing.",
    Reason.NETWORK_POLICY_NAME_TAKEN: "Delete or rename the NetworkPolicy that the message names; until then the job's ports are open.",
    Reason.FINISHED: "Nothing. The checkpoints are in `spec.checkpointDir`.",
    Reason.HOST_FAILED: "Go by the exit code in the message.",
    Reason.CRASHED_TOO_OFTEN: "Find the cause in the message and in `tpujob logs`, fix it, then edit the job's spec to start it again.",
    Reason.UNEXPLAINED_TOO_OFTEN: "See whether the operator was away, and the nodes' events at those times; edit the spec to start it again.",
    Reason.DEADLINE_EXCEEDED: "Submit the job again with more time; it goes on from its checkpoints.",
    Reason.JOBSET_FAILED: "`kubectl describe jobset NAME`; logs of pods that are gone are in your log collector.",
    Reason.JOBSET_DELETED: "Submit the job again; it goes on from its checkpoints.",
}  # fmt: skip
"""What to do about each reason of a condition."""
