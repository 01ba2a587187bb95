"""Which end of a pod means what: the exit codes of the contract, written as Kubernetes policies."""

from __future__ import annotations

from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_contract.exit_codes import FATAL, KILLED, REPLACED, ExitCode
from tpujob_resource.models.job import TpuTrainingJob

type Object = dict[str, Any]

MAX_RESTARTS = 1_000_000
"""For ever: the field cannot change in a living JobSet, so the operator keeps the budget itself."""


def replaces_pods(job: TpuTrainingJob) -> bool:
    """Whether a pod that is lost is replaced alone, while the others wait for it.

    A job of one pod has no others that would remember which attempt it was.
    """
    return job.spec.in_place_restarts > 0 and job.slices * job.accelerator.hosts_per_slice > 1


def retries(job: TpuTrainingJob) -> Object:
    """How often the Job controller replaces a pod by itself."""
    if job.spec.workers is not None:
        # As many per worker as a job has: an index that fails alone is retried alone, and the others finish.
        return {"backoffLimitPerIndex": job.spec.restarts.crashes}
    if replaces_pods(job):
        # Per index, and not `backoffLimit`: each pod's annotations then count those before it, by which its launcher
        # knows that it is not the first, and one that fails often delays only itself. Containers that were killed and
        # pods that never started are counted; launcher 0 counts each restart that a lost pod costs.
        return {"backoffLimitPerIndex": job.spec.in_place_restarts, "maxFailedIndexes": 0}
    return {"backoffLimit": 0}


def pod_failure_policy(job: TpuTrainingJob) -> Object:
    """What the Job controller does when a pod fails; the first rule that fits counts, anything else is a crash.

    The order matters: a fatal code ends the job even if the pod was also being evicted.
    """
    is_replaced = replaces_pods(job)
    # One member of a gang can be replaced alone only where the others wait for it, an independent worker can anyway.
    free = "FailJob" if job.spec.workers is None and not is_replaced else "Ignore"
    asked = [code for code in REPLACED if code != KILLED] if is_replaced else [ExitCode.STOPPED]
    code = [{"action": "FailJob", "onExitCodes": _exit_codes(*FATAL, container=kubernetes_names.CODE_CONTAINER)}]
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": _exit_codes(*FATAL)},
            *(code if job.spec.code is not None else ()),
            {"action": free, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": free, "onExitCodes": _exit_codes(*asked)},
            # Any other code says that there is no further attempt in these pods: all are made anew.
            *([{"action": "FailJob", "onExitCodes": _exit_codes(*REPLACED, operator="NotIn")}] if is_replaced else ()),
        ]
    }


def failure_policy(job: TpuTrainingJob) -> Object:
    """What JobSet does when a Job has failed.

    The message that a pattern reads is the Job controller's: `Container main for pod NS/POD failed with exit code 77
    matching FailJob rule at index 0`.
    """
    if job.spec.workers is not None:
        # The Job has retried each worker; starting all of them again would change nothing.
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
