"""Usage summed by namespace, queue, owner or job, with costs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpujob.errors import CommandError
from tpujob.fleet.by import By
from tpujob.fleet.usage import LOST, JobUsage, Labels, Use, Went
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.topology.parse import parse_accelerator

WORST = 5
"""The number of jobs whose losses are listed."""


@dataclass(frozen=True)
class Group:
    """The usage of several jobs together."""

    name: str
    """Of a job: namespace/name. Empty for jobs without a queue or an owner."""
    jobs: frozenset[str]
    """As namespace/name."""
    use: Use
    restarts: Mapping[Cause, int] = field(default_factory=dict)
    cost: float | None = None
    """Of the chip-hours held; None without prices."""


def grouped(jobs: Iterable[JobUsage], by: By, prices: Mapping[str, Any] | None = None) -> list[Group]:
    """The groups, those with the most chip-hours first.

    Raises:
        CommandError: the prices have none for a generation that was used.
    """
    parts: dict[str, list[JobUsage]] = {}
    for job in jobs:
        parts.setdefault(_name(job.labels, by), []).append(job)
    groups = [added_up(name, members, prices) for name, members in parts.items()]
    return sorted(groups, key=lambda group: (-group.use.chip_hours, -group.use.used, -group.use.waiting, group.name))


def added_up(name: str, jobs: Sequence[JobUsage], prices: Mapping[str, Any] | None = None) -> Group:
    """The group of all these jobs."""
    use = sum((job.use for job in jobs), Use())
    restarts = {cause: count for cause in Cause if (count := sum(job.restarts.get(cause, 0) for job in jobs))}
    cost = None if prices is None else sum(_cost(job, prices) for job in jobs)
    return Group(name, frozenset(_name(job.labels, By.JOB) for job in jobs), use, restarts, cost)


def worst(jobs: Iterable[JobUsage]) -> list[Group]:
    """The jobs that lost the most chip-hours, most first, at most WORST; jobs without losses are left out."""
    groups = sorted(grouped(jobs, By.JOB), key=lambda group: (-group.use.lost, group.name))
    return [group for group in groups if group.use.lost > 0][:WORST]


def reasons(group: Group) -> list[tuple[Went, float]]:
    """What the lost chip-hours went to, most first."""
    found = [(went, group.use.went[went]) for went in LOST if went in group.use.went]
    return sorted(found, key=lambda each: -each[1])


def _name(labels: Labels, by: By) -> str:
    match by:
        case By.NAMESPACE:
            return labels.namespace
        case By.QUEUE:
            return labels.queue
        case By.OWNER:
            return labels.owner
        case By.JOB:
            return f"{labels.namespace}/{labels.job}"


def _cost(job: JobUsage, prices: Mapping[str, Any]) -> float:
    if not job.use.chip_hours:
        return 0.0
    key = "spotChipHour" if job.labels.is_spot else "chipHour"
    table: Mapping[str, float] = prices.get(key) or {}
    generation = parse_accelerator(job.labels.accelerator).generation
    if generation not in table:
        raise CommandError(f"--prices: {key} has no {generation}; it has {', '.join(table) or 'nothing'}")
    return job.use.chip_hours * table[generation]
