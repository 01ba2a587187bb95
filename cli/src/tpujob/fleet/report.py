"""The report of `tpujob fleet`, as one value and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tpujob.fleet.by import By
from tpujob.fleet.groups import Group, added_up, grouped, reasons, worst
from tpujob.fleet.usage import JobUsage
from tpujob_resource.models.times import format_time


@dataclass(frozen=True, kw_only=True)
class Report:
    """Chips and chip-hours of a span."""

    since: datetime
    until: datetime
    source: str
    """Where the numbers come from, for people."""
    missing: Sequence[str]
    """What the numbers lack, a sentence each."""
    by: By
    groups: Sequence[Group]
    total: Group
    worst: Sequence[Group]
    """The jobs that lost most chip-hours."""
    currency: str = ""


def report(
    jobs: Sequence[JobUsage],
    *,
    since: datetime,
    until: datetime,
    source: str,
    missing: Sequence[str],
    by: By,
    prices: Mapping[str, Any] | None,
) -> Report:
    """The report on these jobs.

    Raises:
        CommandError: the prices have none for a generation that was used.
    """
    return Report(
        since=since,
        until=until,
        source=source,
        missing=missing,
        by=by,
        groups=grouped(jobs, by, prices),
        total=added_up("all", jobs, prices),
        worst=worst(jobs),
        currency="" if prices is None else str(prices.get("currency", "")),
    )


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON values, with hours to two decimal places."""
    return {
        "since": format_time(report.since),
        "until": format_time(report.until),
        "source": report.source,
        "missing": list(report.missing),
        "by": str(report.by),
        "currency": report.currency,
        "groups": [_group(group) for group in report.groups],
        "total": _group(report.total),
        "worst": [_group(group) for group in report.worst],
    }


def _group(group: Group) -> dict[str, Any]:
    use = group.use
    return {
        "name": group.name,
        "jobs": len(group.jobs),
        "chips": {"used": use.used, "idle": use.idle, "waiting": use.waiting},
        "chip_hours": {
            "held": round(use.chip_hours, 2),
            "lost": round(use.lost, 2),
            "waiting": round(use.waiting_hours, 2),
        },
        "went": {str(went): round(hours, 2) for went, hours in use.went.items()},
        "lost_to": [str(went) for went, _ in reasons(group)],
        "goodput": None if use.goodput is None else round(use.goodput, 4),
        "restarts": {str(cause): count for cause, count in group.restarts.items()},
        "cost": None if group.cost is None else round(group.cost, 2),
    }
