"""What to do about the Workloads of a job that MultiKueue runs: the only objects that this operator creates for it.

A Workload that Kueue evicts keeps its quota until the controller of the job's kind releases it
(kubernetes-sigs/kueue:pkg/controller/jobframework/reconciler.go, "handle eviction"). Here it is deleted instead, and
another one is created, which queues again; with it MultiKueue deletes both copies, of the job and of the Workload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.verdict import Object
from tpujob_operator.observe.state import Observed
from tpujob_resource.jobset.environment import grace_seconds
from tpujob_resource.jobset.workload import build_workload
from tpujob_resource.models.phases import TERMINAL
from tpujob_resource.rules.load import load_job, without_status
from tpujob_resource.topology.errors import InvalidJob


@dataclass(frozen=True, kw_only=True)
class PlaceStep:
    """What to do; nothing while the Workload waits, is admitted, or has ended."""

    create: Object | None = None
    delete: tuple[Object, ...] = ()
    pause_seconds: float = 0.0
    """From the deletion until another one is created: pods in the other cluster, which this operator cannot see, save
    their last checkpoint."""
    problems: tuple[str, ...] = ()
    """Of a spec that cannot become a JobSet: no Workload is created."""


def place_step(
    observed: Observed, workloads: Sequence[Object], settings: Settings, *, priority: int | None = None
) -> PlaceStep:
    """The next step for a job that MultiKueue runs.

    Args:
        observed: The job.
        workloads: All that were made for it.
        settings: Of this installation.
        priority: Value of its class, a WorkloadPriorityClass or else a PriorityClass; None: it has none.
    """
    there = [each for each in workloads if not _is_true(each, "Finished")]
    pause = float(grace_seconds(observed.spec, settings))
    if observed.spec.suspend or is_over(observed):
        return PlaceStep(
            delete=tuple(each for each in there if "deletionTimestamp" not in each["metadata"]), pause_seconds=pause
        )
    displaced = tuple(each for each in there if _is_displaced(each))
    if there:
        return PlaceStep(delete=displaced, pause_seconds=pause)
    try:
        job = load_job(without_status(observed.manifest), settings)
    except InvalidJob as error:
        return PlaceStep(problems=error.problems)
    manifest = build_workload(job, settings, priority=priority)
    has_ended = any(each["metadata"]["name"] == manifest["metadata"]["name"] for each in workloads)
    return PlaceStep() if has_ended else PlaceStep(create=manifest)


def is_over(observed: Observed) -> bool:
    """Whether the job's last retry has ended, according to the status that MultiKueue has copied.

    The operator in the worker cluster may have deleted the JobSet of a failed job, and with it the Workload there:
    MultiKueue takes that for a lost worker cluster, and would run the job again.
    """
    status = observed.status
    return status.phase in TERMINAL and observed.spec.retry <= (status.internal.retry or 0)


def _is_displaced(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue evicted it after admission; a deactivated Workload does not count, until it is activated again."""
    is_active = workload["spec"].get("active") is not False and "deletionTimestamp" not in workload["metadata"]
    return is_active and _is_true(workload, "Evicted") and _is_true(workload, "QuotaReserved")


def _is_true(workload: Mapping[str, Any], kind: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)
