"""The exit codes of the contract as failure policies of Job and JobSet."""

from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_contract.exit_codes import FATAL, KILLED, REPLACED, ExitCode
from tpujob_resource.models.job import TpuTrainingJob

type Object = dict[str, Any]

MAX_RESTARTS = 1_000_000
"""No limit: the field is immutable in a live JobSet, so the operator counts restarts itself."""


def replaces_pods(job: TpuTrainingJob) -> bool:
    """Whether only a lost pod is replaced, while the others wait for it.

    If a job has one pod, no other pod could remember which attempt it was.
    """
    return job.spec.in_place_restarts > 0 and job.slices * job.accelerator.hosts_per_slice > 1


def retries(job: TpuTrainingJob) -> Object:
    """The fields of a Job that limit how often its controller replaces a pod."""
    if job.spec.workers is not None:
        # Each worker has the limit of a whole job: a failed index is retried alone, and the others finish.
        return {"backoffLimitPerIndex": job.spec.restarts.crashes}
    if replaces_pods(job):
        # Per index, not `backoffLimit`: each pod's annotations then count the pods before it, from which its launcher
        # knows that it is not the first, and a pod that fails often delays only itself. Containers that were killed and
        # pods that never started count; launcher 0 counts each restart that a lost pod costs.
        return {"backoffLimitPerIndex": job.spec.in_place_restarts, "maxFailedIndexes": 0}
    return {"backoffLimit": 0}


def pod_failure_policy(job: TpuTrainingJob) -> Object:
    """What the Job controller does when a pod fails; the first matching rule applies, any other failure is a crash.

    The order matters: a fatal code ends the job even if the pod was also being evicted.
    """
    is_replaced = replaces_pods(job)
    # A pod of a gang can be replaced alone only if the others wait for it; an independent worker always can.
    free = "FailJob" if job.spec.workers is None and not is_replaced else "Ignore"
    asked = [code for code in REPLACED if code != KILLED] if is_replaced else [ExitCode.STOPPED]
    code = [{"action": "FailJob", "onExitCodes": _exit_codes(*FATAL, container=kubernetes_names.CODE_CONTAINER)}]
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": _exit_codes(*FATAL)},
            *(code if job.spec.code is not None else ()),
            {"action": free, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": free, "onExitCodes": _exit_codes(*asked)},
            # Any other code means that no further attempt starts in these pods: all are recreated.
            *([{"action": "FailJob", "onExitCodes": _exit_codes(*REPLACED, operator="NotIn")}] if is_replaced else ()),
        ]
    }


def failure_policy(job: TpuTrainingJob) -> Object:
    """What JobSet does when a Job has failed.

    The patterns match the Job controller's message: `Container main for pod NS/POD failed with exit code 77 matching
    FailJob rule at index 0`.
    """
    if job.spec.workers is not None:
        # The Job has retried each worker; a restart of all would not help.
        return {"maxRestarts": 0, "restartStrategy": "BlockingRecreate"}
    codes = "|".join(str(int(code)) for code in FATAL)
    return {
        "maxRestarts": MAX_RESTARTS,
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "fatal",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f"failed with exit code ({codes}) "],
            },
            {
                "name": "free",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            },
        ],
    }


def _exit_codes(*codes: int, container: str = kubernetes_names.CONTAINER, operator: str = "In") -> Object:
    return {
        "containerName": container,
        "operator": operator,
        "values": sorted(int(code) for code in codes),
    }
