"""How many crashes a job has had since it last got anywhere: what `restarts.crashes` limits.

JobSet restarts in place, for ever; the operator is the accountant. It charges what `causes` finds to be a crash,
whatever JobSet's own policies made of it: they look at the one Job that failed first. The count starts again whenever
the committed step has advanced between two crashes: a job that loses a host every few hours is well, one that crashes
three times at the same step is not.

Restarts without progress are put off, longer each time, whatever their cause; and those that nobody can explain are
limited too, or a program that stops itself would be restarted for ever.

JobSet also counts what is no restart of the job: pods that stop in order because the job is being suspended may fail
their Job, which the Job controller sees or not, as the moment falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tpujob_operator.api.status import Phase
from tpujob_operator.decide import attempt_cause
from tpujob_operator.decide.attempt_cause import Cause
from tpujob_operator.observe.state import JobSetState, Observed
from tpujob_operator.times import format_time, parse_time

DEFAULT_CRASHES = 3
MOST_UNEXPLAINED = 10
"""Restarts without progress that nobody can explain; one more fails the job."""
LONGEST_PAUSE_SECONDS = 300.0
"""As Kubernetes has it for containers that crash (kubernetes.io, "Pod Lifecycle", CrashLoopBackOff)."""
LASTED_SECONDS = 3600.0
"""Between two restarts: a program that reports no checkpoints has got somewhere in an hour."""
FREE = {
    Cause.DISRUPTION: "disruptions",
    Cause.UNEXPLAINED: "unexplainedRestarts",
    Cause.SUSPENSION: "suspensionRestarts",
}
"""The fields of the status that count what is not charged."""


def account(observed: Observed) -> dict[str, Any]:
    """The books after what was seen: fields of the status, empty while there is nothing new to book."""
    jobset, status = observed.jobset, observed.status
    booked = status.get("bookedRestarts", 0)
    if jobset is None or jobset.restarts <= booked or not _is_all_seen(observed, jobset):
        return {}
    found = Counter(_cause(observed, jobset, attempt) for attempt in range(booked, jobset.restarts))
    books: dict[str, Any] = {"bookedRestarts": jobset.restarts}
    books |= {field: status.get(field, 0) + found[cause] for cause, field in FREE.items() if found[cause]}
    books |= _in_a_row(observed, found)
    crashes = found[Cause.CRASH]
    if crashes:
        committed = _committed_step(observed)
        has_advanced = committed > status.get("crashedAtStep", -1)
        books["crashes"] = crashes if has_advanced else status.get("crashes", 0) + crashes
        books["crashedAtStep"] = committed
    return books


def _in_a_row(observed: Observed, found: Counter[Cause]) -> dict[str, Any]:
    """Counts restarts without progress, and says when the next attempt may start."""
    status = observed.status
    # Several that nobody saw between two looks: the operator was away, for which the job is not to blame.
    unseen = min(1, found[Cause.UNEXPLAINED])
    number = found[Cause.CRASH] + found[Cause.DISRUPTION] + unseen
    if not number:
        return {}
    committed, last = _committed_step(observed), parse_time(status.get("restartTime"))
    has_lasted = last is not None and observed.now - last >= timedelta(seconds=LASTED_SECONDS)
    starts_anew = has_lasted or committed > status.get("restartedAtStep", -1)
    before = 0 if starts_anew else status.get("restartsWithoutProgress", 0)
    unexplained = 0 if starts_anew else status.get("unexplainedWithoutProgress", 0)
    return {
        "restartsWithoutProgress": before + number,
        "unexplainedWithoutProgress": unexplained + unseen,
        "restartedAtStep": committed,
        "restartTime": format_time(observed.now),
    }


def pause_seconds(restarts_without_progress: int, first: float) -> float:
    """Seconds until the next attempt: none after one restart, then `first`, doubling to `LONGEST_PAUSE_SECONDS`."""
    if restarts_without_progress < 2:
        return 0
    return min(LONGEST_PAUSE_SECONDS, first * 2.0 ** min(restarts_without_progress - 2, 30))


def next_restart(observed: Observed, first_pause_seconds: float) -> datetime | None:
    """When the job may go on; None when nothing puts it off."""
    books = {**observed.status, **account(observed)}
    last = parse_time(books.get("restartTime"))
    if last is None:
        return None
    at = last + timedelta(seconds=pause_seconds(books.get("restartsWithoutProgress", 0), first_pause_seconds))
    return at if at > observed.now else None


def unexplained_in_a_row(observed: Observed) -> int:
    """Restarts without progress whose cause nobody saw."""
    count: int = {**observed.status, **account(observed)}.get("unexplainedWithoutProgress", 0)
    return count


def restarts_in_a_row(observed: Observed) -> int:
    """Restarts without progress, whatever their cause."""
    count: int = {**observed.status, **account(observed)}.get("restartsWithoutProgress", 0)
    return count


def booked_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Cause]:
    """How many restarts, by cause, one status has more than another one of the same incarnation."""
    new: Counter[Cause] = Counter()
    total = after.get("bookedRestarts", 0) - before.get("bookedRestarts", 0)
    if total > 0:
        for cause, field in FREE.items():
            new[cause] = after.get(field, 0) - before.get(field, 0)
        new[Cause.CRASH] = total - sum(new.values())
    return new


def restarts(status: Mapping[str, Any], jobset: JobSetState) -> int:
    """Restarts of the job, of those that its JobSet counts; `status` has the books of these."""
    not_of_the_job: int = status.get("suspensionRestarts", 0)
    return jobset.restarts - not_of_the_job


def crashes(observed: Observed) -> int:
    """Crashes since the committed step last advanced."""
    count: int = {**observed.status, **account(observed)}.get("crashes", 0)
    return count


def limit(spec: Mapping[str, Any]) -> int:
    """Crashes that are put up with; the next one fails the job."""
    allowed: int = (spec.get("restarts") or {}).get("crashes", DEFAULT_CRASHES)
    return allowed


def _cause(observed: Observed, jobset: JobSetState, attempt: int) -> Cause:
    cause = attempt_cause.of_attempt(observed, attempt).cause
    status = observed.status
    is_new = attempt >= status.get("restarts", 0) + status.get("suspensionRestarts", 0)
    if is_new and cause is not Cause.CRASH and _is_at_rest(observed, jobset):
        return Cause.SUSPENSION
    return cause


def _is_at_rest(observed: Observed, jobset: JobSetState) -> bool:
    """Whether the job is suspended, or resumed so lately that nothing has run since."""
    status = observed.status
    had_run, runs = "startTime" in status, status.get("hostsReady", 0)
    return jobset.suspended or (status.get("phase") == Phase.STARTING and had_run and not runs and not observed.ended)


def _is_all_seen(observed: Observed, jobset: JobSetState) -> bool:
    """Whether the last attempt is over for every host: a node that is lost may take minutes to show.

    The next attempt's pods are only made when the old ones are gone.
    """
    if observed.hosts or _is_at_rest(observed, jobset) or jobset.outcome is not None:
        return True
    last = {(end.slice_index, end.host_index) for end in observed.ended if end.attempt == jobset.restarts - 1}
    return len(last) >= jobset.hosts


def _committed_step(observed: Observed) -> int:
    """The last committed step that anybody has reported; 0 before the first."""
    known = [
        observed.status.get("lastCheckpointStep"),
        observed.progress.committed_step if observed.progress else None,
    ]
    return max((step for step in known if step is not None), default=0)
