"""Counts restarts in the same pods by cause, from counters of the launchers that only grow.

The pods of a job that start again together are a set, with counters of its own, which each launcher has, since process
0's pod may be gone. Status has the sum of all sets, and of the newest one also what is counted already
(`internal.countedInPlace`): an account adds what it has more, so one that comes again, or late, or from another pod,
adds nothing. What no pod that is left has reported is not counted: restarts since the last report of pods that all
disappear at once.

Sets are ordered by JobSet's restart attempt. Within one, which JobSet continues in new pods after a suspension, a newer
set is known by a later pod of process 0; an account of any other set is of earlier pods, and is ignored. So a pod can
begin one set at most, and `spec.inPlaceRestarts` limits each.

The launchers that wait for the replacement of a lost pod report the loss as a disruption, because they do not know its
cause. The operator does for the last one: if the pod was not asked to stop, it is a crash.

These restarts do not count against `restarts.crashes`: their budget is `spec.inPlaceRestarts`. When that is used up the
pods end, which is one more restart, charged as any other.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from tpujob_contract.reports.in_place import ALL_NEW
from tpujob_operator.observe.in_place import InPlaceAccount, InPlaceEnd, last_restart
from tpujob_operator.observe.state import Ended, Observed
from tpujob_resource.messages.conditions import ended
from tpujob_resource.models.restart_causes import FREE, Cause
from tpujob_resource.models.status import InPlaceAttempt, InPlaceCounts, Status
from tpujob_resource.models.times import EARLIEST

MOST_ATTEMPTS = 8
SKEW_SECONDS = 60
"""How much clocks of hosts may differ, and how long a machine may be silent before it counts as lost."""
MESSAGE_LENGTH = 500

type Fields = dict[str, Any]


def limit(observed: Observed) -> int:
    """How often the programs of one set of pods may start again."""
    return observed.spec.in_place_restarts


def fields_after(status: Status, observed: Observed) -> Fields:
    """Changed fields of the status that count restarts in the same pods; empty without a change.

    Args:
        status: With all restarts of the JobSet that were observed.
        observed: Has the accounts.
    """
    jobset = observed.jobset
    if jobset is None or jobset.uid != observed.status.internal.job_set_uid or not limit(observed):
        return {}
    counted, records = status.internal.counted_in_place, list(status.restarts.in_place_attempts or ())
    found: Counter[str] = Counter()
    for account in sorted(observed.in_place, key=lambda each: (each.attempt, each.created_at, not each.is_lead)):
        known = _counted_of(account, counted)
        if known is None:
            continue
        room = max(0, limit(observed) - known.total())
        new = Counter(islice((Counter[str](account.counts) - known).elements(), room))
        if new:
            newest = max(account.created_at, (counted and counted.created_at) or EARLIEST)
            of_set: Fields = {"attempt": account.attempt, "pod": account.lead, "created_at": newest}
            counted = InPlaceCounts(**of_set, counts=dict(known + new))
        end = account.last
        if end is not None and account.total == (known + new).total():
            cause = _cause_of(end, account.attempt, observed)
            if new[end.cause]:
                new = new - Counter([end.cause]) + Counter([cause])
            records = _with_last(records, _record(account, end, cause, observed), is_new=bool(new))
        found += new
    del found[Cause.SUSPENSION]
    fields: Fields = {"internal.counted_in_place": counted, "restarts.in_place_attempts": records or None}
    changed: Fields = {name: value for name, value in fields.items() if value != status.get(name)}
    if found:
        changed["restarts.in_place"] = (status.restarts.in_place or 0) + found.total()
    for cause in FREE:
        if found[cause]:
            changed[cause.status_field] = (status.get(cause.status_field) or 0) + found[cause]
    return changed


def has_gone_on(observed: Observed, end: Ended | None) -> bool:
    """Whether all programs restarted in place after a recorded end, with another pod in that place."""
    if end is None or observed.jobset is None or end.attempt != observed.jobset.restarts:
        return False
    place = (end.slice_index, end.host_index)
    at = last_restart(observed.in_place, end.attempt)
    others = (host.pod for host in observed.hosts if (host.slice_index, host.host_index) == place)
    return at is not None and end.finished_at < at and any(pod != end.pod for pod in others)


def total(observed: Observed) -> int:
    """How often all programs have started again in the same pods, with this observation."""
    counted = fields_after(observed.status, observed).get("restarts.in_place")
    return int(counted or observed.status.restarts.in_place or 0)


def news(before: Status, after: Status) -> Iterator[InPlaceAttempt]:
    """The ends that a status has and an earlier one lacks."""
    known = {_key(each) for each in before.restarts.in_place_attempts or ()}
    if (after.restarts.in_place or 0) > (before.restarts.in_place or 0):
        yield from (each for each in after.restarts.in_place_attempts or () if _key(each) not in known)


def cause_in_words(record: InPlaceAttempt) -> str:
    """The cause of a restart as the end of a sentence, after its number."""
    cause = next((cause for cause in Cause if cause == record.cause), Cause.UNEXPLAINED)
    who = record.host or "a host"
    how = "" if record.exit_code is None else f" with exit code {record.exit_code}"
    words = f": {record.message}" if record.message else ""
    sentence = ended(f"{who} ended{how}{words}")
    return cause.template.format(sentence)


def _key(record: InPlaceAttempt) -> tuple[int, str, int]:
    return (record.attempt, record.pod, record.number)


def _counted_of(account: InPlaceAccount, counted: InPlaceCounts | None) -> Counter[str] | None:
    """What is counted already of an account's set of pods; None: there are newer pods."""
    if counted is None:
        return Counter()
    if (account.attempt, account.lead) == (counted.attempt, counted.pod):
        return Counter(counted.counts)
    is_newer = account.is_lead and account.created_at > (counted.created_at or EARLIEST)
    is_next = account.attempt > counted.attempt
    return Counter() if is_next or (account.attempt == counted.attempt and is_newer) else None


def _cause_of(end: InPlaceEnd, attempt: int, observed: Observed) -> Cause:
    """The cause of an end; that of a lost pod is what Kubernetes shows."""
    if end.cause is not Cause.DISRUPTION:
        return end.cause
    seen = _ends_of(end, attempt, observed)
    if seen and not any(pod.was_asked or pod.is_consequence for pod in seen):
        return Cause.CRASH
    # Deleted all at once, they were suspended, by the operator or by Kueue.
    is_suspension = end.words == ALL_NEW and not any(pod.is_disrupted for pod in seen)
    return Cause.SUSPENSION if is_suspension else Cause.DISRUPTION


def _ends_of(end: InPlaceEnd, attempt: int, observed: Observed) -> list[Ended]:
    """The observed end of a lost pod; if all were lost, that of the last pod in each place."""
    if end.process is None or end.at is None or end.again is None:
        return []
    place = divmod(end.process, _hosts_per_slice(observed))
    is_any = end.words == ALL_NEW
    # If all launchers are new, none knows when the pods before ended: `at` is when they met, minutes later.
    since = EARLIEST if is_any else end.at - timedelta(seconds=SKEW_SECONDS)
    seen = [
        pod
        for pod in (*observed.replaced, *observed.ended)
        if ((pod.slice_index, pod.host_index) == place or is_any)
        and pod.attempt == attempt
        and since <= pod.finished_at < end.again
    ]
    seen.sort(key=lambda pod: pod.finished_at)
    # The last one of each place: earlier ones ended at earlier restarts.
    return list({(pod.slice_index, pod.host_index): pod for pod in seen}.values())


def _hosts_per_slice(observed: Observed) -> int:
    return max(1, observed.jobset.hosts_per_slice if observed.jobset is not None else 1)


def _with_last(records: list[InPlaceAttempt], last: InPlaceAttempt, *, is_new: bool) -> list[InPlaceAttempt]:
    """The records with a newly counted end, or with details of the last one that were unknown."""
    if is_new:
        return records if last.cause == Cause.SUSPENSION else [*records, last][-MOST_ATTEMPTS:]
    if not records or _key(records[-1]) != _key(last):
        return records
    before = records[-1]
    fields = last.model_dump(exclude_none=True) | before.model_dump(exclude_none=True)
    longest = max(before.message or "", last.message or "", key=len)
    return [*records[:-1], InPlaceAttempt(**fields | {"message": longest or None})]


def _record(account: InPlaceAccount, end: InPlaceEnd, cause: Cause, observed: Observed) -> InPlaceAttempt:
    per_slice = _hosts_per_slice(observed)
    host = None if end.process is None else f"slice {end.process // per_slice} host {end.process % per_slice}"
    fields: Fields = {
        "host": host,
        "exit_code": end.exit_code,
        "time": end.at,
        "step": observed.status.step if end.step is None else end.step,
        "next_step": end.next_step,
        "seconds": end.seconds,
        "message": end.words[-MESSAGE_LENGTH:] or None,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return InPlaceAttempt(attempt=account.attempt, pod=account.lead, number=account.total, cause=str(cause), **known)
