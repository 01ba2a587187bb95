"""Converts answers of Prometheus to usage of jobs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tpujob.fleet.usage import BY_CAUSE, JobUsage, Labels, Use, account, chips_now
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import HOLDS_MACHINES, WAITS_FOR_MACHINES

type Sample = tuple[Mapping[str, str], float]
"""Labels and value."""
type Key = tuple[str, str]
"""Namespace and name."""
type Phases = Mapping[str, float]
"""Chips or chip-hours by phase."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of Prometheus to the expressions of `promql`."""

    chips: Sequence[Sample]
    """`chips`, at the end of the span."""
    hours: Sequence[Sample]
    """`hours_by_phase`."""
    reported: Sequence[Sample]
    """`hours_by_use`."""
    restarts: Sequence[Sample]
    seen: Sequence[Sample] = ()
    """`seen_seconds`."""


MOST_UNSEEN = 0.02
"""Fraction of a span that may lack the operator's series without a note: a restart of Prometheus, the first step."""


def missing(answers: Answers, span: timedelta) -> list[str]:
    """Sentences about what the usage lacks; empty if it lacks nothing."""
    seen, whole = sum(value for _, value in answers.seen), span.total_seconds()
    if seen >= whole * (1 - MOST_UNSEEN):
        return []
    known = f"{seen / 3600:,.0f} of these {whole / 3600:,.0f} hours"
    return [f"Prometheus has series of the operator for {known}; what was held in the others is missing."]


def usage(answers: Answers) -> list[JobUsage]:
    """The usage of each job; a job whose labels changed in the span has several entries."""
    now, hours = _by_labels(answers.chips), _by_labels(answers.hours)
    reported: dict[Key, dict[str, float]] = defaultdict(dict)
    for labels, value in answers.reported:
        reported[_key(labels)][labels["went"]] = value
    causes = {str(cause): cause for cause in BY_CAUSE}
    restarts: dict[Key, dict[Cause, int]] = defaultdict(dict)
    for labels, value in answers.restarts:
        if value and labels["cause"] in causes:
            restarts[_key(labels)][causes[labels["cause"]]] = round(value)
    parts: dict[Key, list[Labels]] = defaultdict(list)
    for each in sorted(now.keys() | hours.keys(), key=str):
        parts[each.namespace, each.job].append(each)
    return [
        part
        for key, of_job in parts.items()
        for part in _of_job(
            {each: hours.get(each, {}) for each in of_job},
            {each: now.get(each, {}) for each in of_job},
            reported[key],
            restarts[key],
        )
    ]


def _of_job(
    hours: Mapping[Labels, Phases],
    now: Mapping[Labels, Phases],
    reported: Mapping[str, float],
    restarts: Mapping[Cause, int],
) -> list[JobUsage]:
    """The entries of a job; what its chip-hours went to is known for the whole job, so each entry gets its share."""
    phases = {phase for part in hours.values() for phase in part}
    went = account({phase: sum(part.get(phase, 0) for part in hours.values()) for phase in phases}, reported, restarts)
    whole = Use(went=went)
    found: list[JobUsage] = []
    for labels, part in hours.items():
        use = Use(waiting_hours=_in(part, WAITS_FOR_MACHINES))
        if whole.chip_hours:
            use += whole.scaled(_in(part, HOLDS_MACHINES) / whole.chip_hours)
        for phase, chips in now[labels].items():
            use += chips_now(phase, chips)
        found.append(JobUsage(labels=labels, use=use, restarts={} if found else restarts))
    return found


def _in(by_phase: Phases, phases: Sequence[str]) -> float:
    return sum(value for phase, value in by_phase.items() if phase in phases)


def _by_labels(samples: Sequence[Sample]) -> dict[Labels, dict[str, float]]:
    found: dict[Labels, dict[str, float]] = defaultdict(dict)
    for labels, value in samples:
        of = Labels(
            namespace=labels["job_namespace"],
            job=labels["job_name"],
            queue=labels.get("queue", ""),
            owner=labels.get("owner", ""),
            accelerator=labels.get("accelerator", ""),
            is_spot=labels.get("spot") == "true",
        )
        found[of][labels["phase"]] = value
    return found


def _key(labels: Mapping[str, str]) -> Key:
    return labels["job_namespace"], labels["job_name"]
