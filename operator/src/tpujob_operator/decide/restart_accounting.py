"""How many crashes a job has had since it last got anywhere: what `restarts.crashes` limits.

JobSet restarts in place, for ever; the operator is the accountant. It charges what `causes` finds to be a crash,
whatever JobSet's own policies made of it: they look at the one Job that failed first. The count starts again whenever
the committed step has advanced between two crashes: a job that loses a host every few hours is well, one that crashes
three times at the same step is not.

JobSet also counts what is no restart of the job: pods that stop in order because the job is being suspended may fail
their Job, which the Job controller sees or not, as the moment falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tpujob_operator.api.status import Phase
from tpujob_operator.decide import attempt_cause
from tpujob_operator.decide.attempt_cause import Cause
from tpujob_operator.observe.state import JobSetState, Observed

DEFAULT_CRASHES = 3
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
    crashes = found[Cause.CRASH]
    if crashes:
        committed = _committed_step(observed)
        has_advanced = committed > status.get("crashedAtStep", -1)
        books["crashes"] = crashes if has_advanced else status.get("crashes", 0) + crashes
        books["crashedAtStep"] = committed
    return books


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
