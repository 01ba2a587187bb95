"""Counts restarts by cause, and the crashes since the last progress, which `restarts.crashes` limits.

JobSet restarts without a limit; the operator counts. It charges what `attempt_cause` finds to be a crash, whatever
JobSet's own policies made of it: they look at the one Job that failed first. The count starts at zero when the
committed step has advanced between two crashes: a job that loses a host every few hours is healthy, one that crashes
three times at the same step is not.

Restarts without progress are delayed, longer each time, whatever their cause. Unexplained ones are limited, too, or a
program that stops itself would be restarted without end.

JobSet also counts some suspensions as restarts: pods that stop because the job is being suspended may fail their Job,
depending on when the Job controller looks.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tpujob_operator.decide.causes import attempt_cause, node_failures
from tpujob_operator.decide.causes.attempt_cause import AttemptCause
from tpujob_operator.observe.state import JobSetState, Observed
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.restart_causes import FREE, RESTARTS, Cause
from tpujob_resource.models.status import Status

MOST_UNEXPLAINED = 10
"""Unexplained restarts without progress; one more fails the job."""
LONGEST_PAUSE_SECONDS = 300.0
"""As for crashing containers in Kubernetes (kubernetes.io, "Pod Lifecycle", CrashLoopBackOff)."""
MOST_JUDGED = 64
"""Most new restarts whose cause is determined, the last ones; no evidence of earlier attempts is kept."""
LASTED_SECONDS = 3600.0
"""Time between two restarts that counts as progress: a program may report no checkpoints."""


def with_recorded_restarts(observed: Observed) -> Status:
    """The recorded status, with all restarts observed after it was written."""
    return observed.status.updated(account(observed))


def account(observed: Observed) -> dict[str, Any]:
    """Changed fields of the status that count restarts; empty without a new restart."""
    jobset, status = observed.jobset, observed.status
    judged_before = status.internal.booked_restarts or 0
    if jobset is None or jobset.uid != status.internal.job_set_uid:
        return {}  # an earlier incarnation's restarts are not this one's
    if jobset.restarts <= judged_before or not _is_all_seen(observed, jobset):
        return {}
    first = max(judged_before, jobset.restarts - MOST_JUDGED)
    judged = [_finding(observed, jobset, attempt) for attempt in range(first, jobset.restarts)]
    found = Counter(finding.cause for finding in judged)
    found[Cause.UNEXPLAINED] += first - judged_before
    fields: dict[str, Any] = {"internal.booked_restarts": jobset.restarts}
    fields |= {each.status_field: _count(status, each) + found[each] for each in FREE if found[each]}
    fields |= _in_a_row(observed, found)
    crashes = found[Cause.CRASH]
    if crashes:
        committed = committed_step(observed)
        has_advanced = _is_beyond(committed, status.internal.crashed_at_step)
        fields["restarts.charged"] = crashes if has_advanced else (status.restarts.charged or 0) + crashes
        fields["internal.crashed_at_step"] = committed
    nodes = node_failures.with_crashes(status, (f.crashed for f in judged if f.crashed is not None), observed.now)
    return fields if nodes is None else fields | {"node_failures": nodes}


def account_of_lost_pods(observed: Observed) -> dict[str, Any]:
    """Changed fields of the status that count lost pods whose replacements did not come before all pods are replaced.

    Neither launchers nor JobSet have counted those: the programs of the others waited, and did not start again.
    """
    jobset, status = observed.jobset, observed.status
    if jobset is None or jobset.suspended or not observed.spec.in_place_restarts:
        return {}  # pods of a suspended JobSet were stopped, and not lost
    cause = attempt_cause.of_attempt(observed, jobset.restarts).cause
    if cause is not Cause.DISRUPTION:
        return {}  # a crash is counted when JobSet has seen it
    fields = {"restarts.total": (status.restarts.total or 0) + 1, cause.status_field: _count(status, cause) + 1}
    return {**fields, **_in_a_row(observed, Counter([cause]))}


def _count(status: Status, cause: Cause) -> int:
    count: int | None = status.get(cause.status_field)
    return count or 0


def _is_beyond(committed: int, step: int | None) -> bool:
    return step is None or committed > step


def _in_a_row(observed: Observed, found: Counter[Cause]) -> dict[str, Any]:
    """Fields that count restarts without progress, and the time of the last one."""
    status = observed.status
    # Several unobserved ones between two reconciles count as one: the operator was not running.
    unseen = min(1, found[Cause.UNEXPLAINED])
    number = unseen + sum(found[cause] for cause in RESTARTS if cause is not Cause.UNEXPLAINED)
    if not number:
        return {}
    committed, last = committed_step(observed), status.internal.restart_time
    has_lasted = last is not None and observed.now - last >= timedelta(seconds=LASTED_SECONDS)
    is_reset = has_lasted or _is_beyond(committed, status.internal.restarted_at_step)
    before = 0 if is_reset else status.internal.restarts_without_progress or 0
    unexplained = 0 if is_reset else status.internal.unexplained_without_progress or 0
    return {
        "internal.restarts_without_progress": before + number,
        "internal.unexplained_without_progress": unexplained + unseen,
        "internal.restarted_at_step": committed,
        "internal.restart_time": observed.now.replace(microsecond=0),
    }


def pause_seconds(restarts_without_progress: int, first: float) -> float:
    """Seconds until the next attempt: none after one restart, then `first`, doubling to `LONGEST_PAUSE_SECONDS`."""
    if restarts_without_progress < 2:
        return 0
    return min(LONGEST_PAUSE_SECONDS, first * 2.0 ** min(restarts_without_progress - 2, 30))


def next_restart(observed: Observed, first_pause_seconds: float) -> datetime | None:
    """When the next attempt may start; None: now."""
    last = with_recorded_restarts(observed).internal.restart_time
    if last is None:
        return None
    pause = pause_seconds(restarts_in_a_row(observed), first_pause_seconds)
    at = last + timedelta(seconds=pause)
    return at if at > observed.now else None


def unexplained_in_a_row(observed: Observed) -> int:
    """Restarts without progress and without a known cause."""
    return with_recorded_restarts(observed).internal.unexplained_without_progress or 0


def restarts_in_a_row(observed: Observed) -> int:
    """Restarts without progress, whatever their cause."""
    return with_recorded_restarts(observed).internal.restarts_without_progress or 0


def recorded_between(before: Status, after: Status) -> Counter[Cause]:
    """How many restarts, by cause, one status has more than another one of the same run."""
    new: Counter[Cause] = Counter()
    in_place = (after.restarts.in_place or 0) - (before.restarts.in_place or 0)
    total = (after.internal.booked_restarts or 0) - (before.internal.booked_restarts or 0) + in_place
    if after.current_incarnation != before.current_incarnation:
        total = (after.restarts.total or 0) - (before.restarts.total or 0)
    if total > 0:
        for cause in FREE:
            new[cause] = _count(after, cause) - _count(before, cause)
        new[Cause.CRASH] = total - sum(new.values())
    return new


def totals(status: Status, jobset: JobSetState) -> dict[str, Any]:
    """Fields with all restarts: of the JobSet, as `status` counts them, of earlier JobSets, and in place."""
    internal = status.internal
    of_jobset = jobset.restarts - (internal.suspension_restarts or 0) + (internal.earlier_restarts or 0)
    total = of_jobset + (status.restarts.in_place or 0)
    if not total:
        return {}
    unjudged = max(0, jobset.restarts - (internal.booked_restarts or 0))
    return {"restarts.total": total} | sums(status.updated({"restarts.total": total - unjudged}))


def sums(status: Status) -> dict[str, Any]:
    """The fields that divide the restarts of a status, whose causes are known, into free ones and crashes."""
    free = sum(_count(status, cause) for cause in FREE if cause.is_restart)
    crashes = (status.restarts.total or 0) - free
    return {"restarts.free": free or None, "restarts.crashes": max(0, crashes) or None}


def of_jobsets(status: Status) -> int | None:
    """The recorded restarts without those in the same pods; None before the first of any kind."""
    return None if status.restarts.total is None else status.restarts.total - (status.restarts.in_place or 0)


def crashes(observed: Observed) -> int:
    """Crashes since the committed step last advanced."""
    return with_recorded_restarts(observed).restarts.charged or 0


def _finding(observed: Observed, jobset: JobSetState, attempt: int) -> AttemptCause:
    finding = attempt_cause.of_attempt(observed, attempt)
    status, internal = observed.status, observed.status.internal
    known = (of_jobsets(status) or 0) - (internal.earlier_restarts or 0) + (internal.suspension_restarts or 0)
    # Kueue resumes a job that it admits even if pods are still stopping.
    rests = status.phase is Phase.STOPPING or _is_at_rest(observed, jobset, attempt)
    if attempt >= known and finding.cause is not Cause.CRASH and rests:
        return replace(finding, cause=Cause.SUSPENSION)
    return finding


def _is_at_rest(observed: Observed, jobset: JobSetState, attempt: int) -> bool:
    """Whether the job is suspended, or was resumed and nothing of this attempt has run since.

    The recorded status may be older than the start of all hosts if it could not be written. A job that has lost its
    hosts and waits for others is Starting, too; but a suspension clears the time of its step, and a loss keeps it.
    """
    status = observed.status
    was_at_rest = status.phase in (Phase.QUEUED, Phase.SUSPENDED, Phase.STARTING) and status.progress.step_time is None
    is_resuming = was_at_rest and status.start_time is not None and not status.hosts_ready
    return jobset.suspended or (is_resuming and not any(end.attempt >= attempt for end in observed.ended))


def _is_all_seen(observed: Observed, jobset: JobSetState) -> bool:
    """Whether the last attempt has ended on every host: the loss of a node may take minutes to appear.

    The pods of the next attempt are only created when the old ones are gone.
    """
    if observed.hosts or _is_at_rest(observed, jobset, jobset.restarts - 1) or jobset.outcome is not None:
        return True
    last = {(end.slice_index, end.host_index) for end in observed.ended if end.attempt == jobset.restarts - 1}
    return len(last) >= jobset.hosts


def committed_step(observed: Observed) -> int:
    """The last committed step that was reported; 0 before the first."""
    known = [
        observed.status.last_checkpoint_step,
        observed.progress.committed_step if observed.progress else None,
    ]
    return max((step for step in known if step is not None), default=0)
