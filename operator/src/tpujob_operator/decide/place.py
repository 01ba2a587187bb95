"""What becomes of the Workloads of a job that MultiKueue runs: the one thing that this operator makes for it.

A Workload that Kueue evicts keeps its quota until the kind's controller gives it back
(kubernetes-sigs/kueue:pkg/controller/jobframework/reconciler.go, "handle eviction"). Here it is deleted instead, and
another one made, which queues again; with it MultiKueue deletes both copies, of the job and of the Workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob_operator.decide.verdict import Object
from tpujob_operator.observe.state import Observed
from tpujob_operator.settings import Settings
from tpujob_resource.errors import InvalidJob
from tpujob_resource.jobset.environment import grace_seconds
from tpujob_resource.jobset.workload import build_workload
from tpujob_resource.models.status import TERMINAL
from tpujob_resource.rules.load import load_job, without_status


@dataclass(frozen=True, kw_only=True)
class PlaceStep:
    """What to do; nothing while the Workload waits, has its place, or has ended."""

    create: Object | None = None
    delete: tuple[Object, ...] = ()
    pause_seconds: float = 0.0
    """After the deletion, until another one is made: pods in the other cluster, which cannot be seen from here, save
    their last checkpoint."""
    problems: tuple[str, ...] = ()
    """Of a spec that cannot become a JobSet: it asks for no place."""


def place_step(
    observed: Observed, workloads: Sequence[Object], settings: Settings, *, priority: int | None = None
) -> PlaceStep:
    """What follows for a job that MultiKueue runs.

    Args:
        observed: The job.
        workloads: All that were made for it.
        settings: Of this installation.
        priority: Value of its PriorityClass; None where it has none.
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
    """Whether its last try has ended, by the status that MultiKueue has copied.

    The worker's operator may have deleted the JobSet of a job that failed, and with it the Workload there: MultiKueue
    takes that for a lost worker, and would have the job run again.
    """
    status = observed.status
    return status.phase in TERMINAL and observed.spec.retry <= (status.retry or 0)


def _is_displaced(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue took its place back; one that was deactivated stays, until whoever did that activates it."""
    is_active = workload["spec"].get("active") is not False and "deletionTimestamp" not in workload["metadata"]
    return is_active and _is_true(workload, "Evicted") and _is_true(workload, "QuotaReserved")


def _is_true(workload: Mapping[str, Any], kind: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)
