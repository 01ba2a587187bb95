"""Verdicts that change how many slices a job runs with; `chain.CHAIN` puts them in order.

A slice without machines keeps all others waiting, and a queue that has no quota for all slices admits none. If
`spec.minSlices` allows it, the job continues with the slices that have machines, or waits in its queue with fewer, and
grows when machines, or quota, for more are free. Each change is a new incarnation from the last checkpoint; none counts
as a restart, or against the budget of crashes.

Hysteresis: every resize delays the next growth, and a failed growth doubles the delay.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import committed_step
from tpujob_operator.decide.checks import running
from tpujob_operator.decide.checks.between_attempts import are_all_ready, is_between_attempts, is_judged, same_run_anew
from tpujob_operator.decide.checks.queue import waiting
from tpujob_operator.decide.verdict import Statement, Verdict
from tpujob_operator.observe.state import JobSetState, Observed
from tpujob_resource.messages.conditions import Reason, sentence
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.times import format_time
from tpujob_resource.rules.slice_counts import possible_counts, shrink_after_seconds
from tpujob_resource.topology.errors import InvalidJob

LONGEST_PAUSE_SECONDS = 21_600
"""Between a failed growth and the next one: six hours."""
MOST_DOUBLINGS = 16
"""Of a delay that doubles; more would overflow `datetime`."""


def shrunk(observed: Observed, settings: Settings) -> Verdict | None:
    """Machines for a slice have been missing for too long, and enough other slices have theirs."""
    jobset, since = observed.jobset, observed.status.slices.missing_time
    assert jobset is not None  # an earlier check of the chain handles None
    if since is None or not is_between_attempts(observed, jobset):
        return None
    waits = running.waiting_for_capacity(observed, settings)
    if waits is None or observed.now < since + timedelta(seconds=shrink_after_seconds(observed.spec)):
        return None
    complete = complete_slices(observed, jobset)
    after = next((count for count in _possible(observed) if count <= complete), None)
    if after is None:
        return None
    return _resized(
        observed,
        Phase.RESTARTING,
        Reason.SHRUNK,
        after,
        missing=jobset.slices - complete,
        since=format_time(since),
        least=observed.spec.min_slices,
        detail=waits.condition_update.message,
    )


def queued_smaller(observed: Observed, _: Settings) -> Verdict | None:
    """The queue has not admitted the job for too long, and may admit a smaller one."""
    jobset, since, queue = observed.jobset, observed.status.slices.missing_time, observed.spec.queue
    assert jobset is not None  # an earlier check of the chain handles None
    if not queue or since is None or not jobset.suspended or observed.pods_left or observed.spec.suspend:
        return None
    if observed.status.phase is not Phase.QUEUED or not is_judged(observed, jobset):
        return None
    if observed.now < since + timedelta(seconds=shrink_after_seconds(observed.spec)):
        return None
    if observed.queue is not None and not (observed.queue.message or observed.queue.has_quota):
        return None  # Kueue has not tried to admit it yet, as far as is known
    waits = waiting(observed)
    after = next((count for count in _possible(observed) if count < jobset.slices), None)
    if after is None or waits.condition_update.reason is Reason.QUEUE_UNUSABLE:
        return None
    return _resized(
        observed,
        Phase.QUEUED,
        Reason.QUEUED_SMALLER,
        after,
        queue=queue,
        since=format_time(since),
        least=observed.spec.min_slices,
        detail=waits.condition_update.message,
    )


def grown(observed: Observed, _: Settings) -> Verdict | None:
    """The job runs with fewer slices than it asks for, and more are available, or are to be tried."""
    jobset, wanted = observed.jobset, observed.spec.slices
    assert jobset is not None  # an earlier check of the chain handles None
    if wanted is None or jobset.slices >= wanted or not _may_stop(observed, jobset):
        return None
    if observed.status.slices.next_growth_time is not None and observed.now < observed.status.slices.next_growth_time:
        return None
    after = next(
        (count for count in _possible(observed) if count <= jobset.slices + observed.free_slices), jobset.slices
    )
    what = "Places in the queue" if observed.spec.queue else "Machines"
    why = f"{what} for {observed.free_slices} more slices are free."
    if after <= jobset.slices:
        if not _is_to_try(observed):
            return None
        after = wanted
        why = f"All slices are tried again after spec.growAfterSeconds ({observed.spec.grow_after_seconds} s)."
    return _resized(observed, Phase.STOPPING, Reason.GROWN, after, why=why)


def _resized(observed: Observed, phase: Phase, reason: Reason, after: int, **words: object) -> Verdict:
    """A verdict that starts another incarnation with `after` slices; `words` are the other fields of its message."""
    jobset = observed.jobset
    assert jobset is not None  # only an existing JobSet is resized
    incarnation = observed.status.current_incarnation + 1
    message = sentence(reason, before=jobset.slices, after=after, incarnation=incarnation, **words)
    condition_update = Statement(phase, reason, message, is_valid=None)
    return same_run_anew(condition_update, observed.status.node_failures or (), slices=after)


def complete_slices(observed: Observed, jobset: JobSetState) -> int:
    """Slices whose hosts all have machines."""
    arrived = Counter(
        host.slice_index for host in observed.hosts if host.ip is not None or host.ready or host.succeeded
    )
    return sum(count >= jobset.hosts_per_slice for count in arrived.values())


def after_resize(observed: Observed, slices: int) -> dict[str, Any]:
    """Fields of the status after a change to this number of slices."""
    status, jobset = observed.status, observed.jobset
    assert jobset is not None  # only an existing JobSet is resized
    committed = committed_step(observed)
    failed = status.internal.growths_without_progress or 0
    if slices > jobset.slices:
        # Counts as failed until it has made progress.
        failed += 1
    elif committed > (status.internal.resized_at_step or 0):
        failed = 0
    return {
        "slices.current": slices,
        "slices.changed_time": observed.now.replace(microsecond=0),
        "slices.resizes": (status.slices.resizes or 0) + 1,
        "internal.resized_at_step": committed,
        "internal.growths_without_progress": failed or None,
        "slices.next_growth_time": _next_growth(observed, failed),
    }


def size(observed: Observed, phase: Phase) -> dict[str, Any]:
    """Fields of the status about the number of slices; empty: the number cannot change."""
    status, jobset = observed.status, observed.jobset
    if not is_watched(observed) or jobset is None or jobset.incarnation != status.current_incarnation:
        return {}
    since = status.slices.missing_time
    if (phase is Phase.QUEUED) != (status.phase is Phase.QUEUED):
        since = None  # the waits for a queue and for machines are timed separately
    if phase in (Phase.WAITING_FOR_CAPACITY, Phase.QUEUED):
        since = since or observed.now.replace(microsecond=0)
    elif phase in (Phase.RUNNING, Phase.STALLED, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED):
        since = None
    return {"slices.current": jobset.slices, "slices.missing_time": since}


def is_watched(observed: Observed) -> bool:
    """Whether the number of slices of a job may differ from `spec.slices`."""
    return observed.spec.min_slices is not None or observed.status.slices.current is not None


def _may_stop(observed: Observed, jobset: JobSetState) -> bool:
    """Whether all hosts run, none has finished, and no failure is still to be judged.

    While hosts start, machines that look free may be those that they are about to take.
    """
    is_ending = any(host.succeeded for host in observed.hosts)
    return is_judged(observed, jobset) and are_all_ready(observed, jobset) and not is_ending


def _possible(observed: Observed) -> tuple[int, ...]:
    try:
        return possible_counts(observed.job)
    except InvalidJob:
        return ()  # accepted by an earlier release; it runs as it was made


def _is_to_try(observed: Observed) -> bool:
    seconds, status = observed.spec.grow_after_seconds, observed.status
    if seconds is None or status.slices.changed_time is None:
        return False
    pause = _doubled(seconds, status.internal.growths_without_progress or 0)
    return observed.now >= status.slices.changed_time + timedelta(seconds=pause)


def _next_growth(observed: Observed, failed: int) -> datetime:
    least = shrink_after_seconds(observed.spec)
    pause = min(_doubled(least, failed), max(LONGEST_PAUSE_SECONDS, least))
    return observed.now.replace(microsecond=0) + timedelta(seconds=pause)


def _doubled(seconds: float, times: int) -> float:
    return seconds * 2.0 ** min(times, MOST_DOUBLINGS)
