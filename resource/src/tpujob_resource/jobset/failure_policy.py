"""Which end of a pod means what: the exit codes of the contract, written as Kubernetes policies."""

from __future__ import annotations

from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_contract.exit_codes import FATAL, ExitCode
from tpujob_resource.models.job import TpuTrainingJob

type Object = dict[str, Any]

MAX_RESTARTS = 1_000_000
"""For ever: the field cannot change in a living JobSet, so the operator keeps the budget itself."""


def pod_failure_policy(job: TpuTrainingJob) -> Object:
    """What the Job controller does when a pod fails; the first rule that fits counts, anything else is a crash.

    The order matters: a fatal code ends the job even if the pod was also being evicted.
    """
    # One member of a gang cannot be replaced alone, an independent worker can.
    free = "FailJob" if job.spec.workers is None else "Ignore"
    code = [{"action": "FailJob", "onExitCodes": _exit_codes(*FATAL, container=kubernetes_names.CODE_CONTAINER)}]
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": _exit_codes(*FATAL)},
            *(code if job.spec.code is not None else ()),
            {"action": free, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": free, "onExitCodes": _exit_codes(ExitCode.STOPPED)},
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


def _exit_codes(*codes: ExitCode, container: str = kubernetes_names.CONTAINER) -> Object:
    return {
        "containerName": container,
        "operator": "In",
        "values": sorted(int(code) for code in codes),
    }
