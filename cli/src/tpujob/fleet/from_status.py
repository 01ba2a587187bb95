"""The usage of the jobs of a cluster, as far as their statuses contain it. Pure.

A status has no history: it says what the time since the job's start went to, but not when. So a job counts as a whole
or not at all, with the chips that it has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tpujob.fleet.promql import WENT_BY_CATEGORY
from tpujob.fleet.usage import JobUsage, Labels, Use, account, chips_now
from tpujob_resource.models.restart_causes import RESTARTS
from tpujob_resource.models.status import HOLDS_MACHINES, Phase, Status
from tpujob_resource.models.stored import StoredJob


@dataclass(frozen=True, kw_only=True)
class Found:
    """The usage, and how many jobs are inexact in it."""

    jobs: list[JobUsage]
    began_before: int = 0
    """Jobs that began before the span; they count as a whole."""
    without_report: int = 0
    """Jobs that ran, but whose processes did not report what the time went to."""


def usage(jobs: Iterable[Mapping[str, Any]], *, owner_label: str, since: datetime, now: datetime) -> Found:
    """The usage of the jobs that did not end before the span.

    Args:
        jobs: TpuTrainingJobs as JSON.
        owner_label: Label whose value is the owner.
        since: The start of the span.
        now: Its end.
    """
    found, began_before, without_report = [], 0, 0
    for manifest in jobs:
        job = StoredJob(manifest=manifest)
        status = job.status
        if status.completion_time is not None and status.completion_time < since:
            continue
        one = _of_job(job, owner_label, now)
        found.append(one)
        if one.use.chip_hours:
            began_before += status.start_time is not None and status.start_time < since
            without_report += not status.goodput
    return Found(jobs=found, began_before=began_before, without_report=without_report)


def _of_job(job: StoredJob, owner_label: str, now: datetime) -> JobUsage:
    spec, status = job.spec, job.status
    chips = (status.hosts or 0) * spec.chips_per_host
    hours = {
        word: sum((status.goodput or {}).get(category, 0) for category in categories) * chips / 3600
        for word, categories in WENT_BY_CATEGORY.items()
    }
    total = sum(hours.values()) or _seconds_held(status, now) * chips / 3600
    free = {cause: getattr(status, cause.status_field) or 0 for cause in RESTARTS if not cause.is_charged}
    charged = max(0, (status.restarts or 0) - sum(free.values()))
    restarts = {cause: count for cause in RESTARTS if (count := free.get(cause, charged))}
    labels = Labels(
        namespace=job.namespace,
        job=job.name,
        queue=spec.queue or "",
        owner=job.owner(owner_label),
        accelerator=spec.accelerator,
        is_spot=spec.is_spot,
    )
    use = Use(went=account({Phase.RUNNING: total}, hours, restarts)) + chips_now(status.phase or "", chips)
    return JobUsage(labels=labels, use=use, restarts=restarts)


def _seconds_held(status: Status, now: datetime) -> float:
    """Seconds from when all hosts first ran to the job's end, or to now; 0 for a job that waits or is suspended now."""
    if status.start_time is None:
        return 0.0
    if status.completion_time is not None:
        return max(0.0, (status.completion_time - status.start_time).total_seconds())
    return max(0.0, (now - status.start_time).total_seconds()) if status.phase in HOLDS_MACHINES else 0.0
