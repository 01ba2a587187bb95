"""Counts attempts in the same pods, each once and by its cause, from the accounts of these pods.

An account is counted up to `spec.inPlaceRestarts` for one set of pods, and a number that falls changes nothing. A set
of pods is identified by the name of process 0's first pod, which Kubernetes gave. So an account that starts at zero in
a new set adds to the total, an account of pods that are gone is not counted twice, and the account of a replacement
continues that of the pod before it. Each launcher has the whole account, since process 0's pod may be gone.

The launchers that wait for the replacement of a lost pod report the loss as a disruption, because they do not know its
cause. The operator does: if the pod was not asked to stop, it is a crash.

These restarts do not count against `restarts.crashes`: their budget is `spec.inPlaceRestarts`. When that is used up the
pods end, which is one more restart, charged as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tpujob_contract.reports.in_place import ALL_NEW
from tpujob_operator.observe.in_place import InPlaceAccount, InPlaceEnd, PodAccount, last_restart
from tpujob_operator.observe.state import Ended, Host, Observed
from tpujob_resource.messages.conditions import ended
from tpujob_resource.models.phases import RUNNING_PHASES, Phase
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import InPlaceAttempt, InPlacePod, Status
from tpujob_resource.models.times import EARLIEST

FIELD_OF_CAUSE: Mapping[Cause, str] = {
    Cause.CRASH: "crashes",
    Cause.UNEXPLAINED: "unexplained",
    Cause.DISRUPTION: "disruptions",
    Cause.SUSPENSION: "suspensions",
}
"""Fields of `InPlacePod`, in the order in which they use up the limit. A suspension is counted, but is no restart."""
MOST_PODS, MOST_ATTEMPTS = 4, 8
SKEW_SECONDS = 60
"""How much clocks of hosts may differ, and how long a machine may be silent before it counts as lost."""
MESSAGE_LENGTH = 500

type Fields = dict[str, Any]


def limit(observed: Observed) -> int:
    """How often the programs of one set of pods may start again."""
    return observed.spec.in_place_restarts


def fields_after(status: Status, observed: Observed, phase: Phase) -> Fields:
    """Changed fields of the status that count restarts in the same pods; empty without a change.

    Args:
        status: With all restarts of the JobSet that were observed.
        observed: Has the accounts.
        phase: Of the job, after this observation.
    """
    jobset = observed.jobset
    if jobset is None or jobset.uid != observed.status.internal.job_set_uid or not limit(observed):
        return {}
    pods = list(status.internal.in_place_pods or ())
    records = list(status.restarts.in_place_attempts or ())
    found: Counter[Cause] = Counter()
    lead = _running_lead(observed, phase)
    explained = [_explained(each, observed) for each in observed.in_place]
    for reported in sorted(explained, key=lambda each: (each.attempt, not each.is_lead)):
        place = _place_of(reported, pods, lead)
        if place is None:
            continue
        new = _additions(pods[place], reported.account, limit(observed))
        pods[place] = _with(pods[place], new)
        records = _with_ends(records, pods[place], reported.account, observed)
        found += Counter({cause: number for cause, number in new.items() if cause.is_restart})
    # In order, or a record that is left out here would come back at the end with the next report.
    order = {(entry.attempt, entry.pod): place for place, entry in enumerate(pods)}
    records.sort(key=lambda each: (order.get((each.attempt, each.pod), -1), each.number))
    if not any(lead is not None and each.pod == lead.pod and each.account.lead for each in explained):
        _note_lead(pods, lead)
    fields: Fields = {
        "internal.in_place_pods": pods[-MOST_PODS:] or None,
        "restarts.in_place_attempts": records[-MOST_ATTEMPTS:] or None,
    }
    changed: Fields = {name: value for name, value in fields.items() if value != (status.get(name) or None)}
    if found:
        changed["restarts.in_place"] = (status.restarts.in_place or 0) + found.total()
    for cause in found:
        if not cause.is_charged:
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
    counted = fields_after(observed.status, observed, Phase.FAILED).get("restarts.in_place")
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


def _place_of(reported: PodAccount, pods: list[InPlacePod], lead: Host | None) -> int | None:
    """The index of the entry for an account, which is added if there is none; None: its pods are long gone.

    Entries beyond `MOST_PODS` are dropped. An account as old as the oldest entry may belong to a dropped one, which was
    counted before.
    """
    for entry in list(pods):
        if entry.pod and entry.pod == reported.account.lead and entry.attempt == reported.attempt:
            # A replacement of the entry's pod; it may have an empty entry of its own from before its first report.
            pods[:] = [each for each in pods if each is entry or each.pod != reported.pod or _total(each)]
            return pods.index(entry)
    for place in reversed(range(len(pods))):
        entry = pods[place]
        if reported.is_lead and entry.pod == reported.pod:
            return place
        if entry.attempt == reported.attempt and (not reported.is_lead or not entry.pod):
            if reported.is_lead:
                pods[place] = entry.model_copy(update={"pod": reported.pod})
            return place
    may_be_dropped = len(pods) >= MOST_PODS and reported.attempt <= pods[0].attempt
    if any(entry.attempt > reported.attempt for entry in pods) or (
        may_be_dropped and (lead is None or lead.pod != reported.pod)
    ):
        return None
    pods.append(InPlacePod(pod=reported.pod if reported.is_lead else "", attempt=reported.attempt))
    return len(pods) - 1


def _explained(reported: PodAccount, observed: Observed) -> PodAccount:
    """An account in which lost pods have the cause that Kubernetes shows."""
    counts, ends = Counter(reported.account.counts), []
    for end in reported.account.ends:
        if end.cause is Cause.DISRUPTION:
            seen = _ends_of(end, reported.attempt, observed)
            is_crash = bool(seen) and not any(pod.was_asked or pod.is_consequence for pod in seen)
            # Deleted all at once, they were suspended, by the operator or by Kueue.
            is_suspension = end.words == ALL_NEW and not is_crash and not any(pod.is_disrupted for pod in seen)
            cause = Cause.CRASH if is_crash else Cause.SUSPENSION if is_suspension else Cause.DISRUPTION
            counts[Cause.DISRUPTION] -= 1
            counts[cause] += 1
            end = replace(end, cause=cause)
        ends.append(end)
    return replace(reported, account=replace(reported.account, counts=+counts, ends=tuple(ends)))


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


def _running_lead(observed: Observed, phase: Phase) -> Host | None:
    """The pod of process 0, while the job runs."""
    leads = (host for host in observed.hosts if (host.slice_index, host.host_index) == (0, 0))
    return next(leads, None) if phase in RUNNING_PHASES else None


def _note_lead(pods: list[InPlacePod], lead: Host | None) -> None:
    """Adds an entry for the running pods, to which accounts of the other pods then belong."""
    if lead is not None:
        empty = InPlaceAccount()
        _place_of(PodAccount(pod=lead.pod, attempt=lead.attempt, is_lead=True, account=empty), pods, lead)


def _additions(entry: InPlacePod, account: InPlaceAccount, most: int) -> Counter[Cause]:
    """What an account adds to an entry, within the limit."""
    # Nor beyond the account's own total: the cause of a lost pod may be known at one reconcile, and not at the next.
    room = min(most, account.total) - _total(entry)
    found: Counter[Cause] = Counter()
    for cause, name in FIELD_OF_CAUSE.items():
        more = min(room, account.counts.get(cause, 0) - getattr(entry, name))
        if more > 0:
            found[cause] = more
            room -= more
    return found


def _with(entry: InPlacePod, new: Counter[Cause]) -> InPlacePod:
    counted = {FIELD_OF_CAUSE[cause]: getattr(entry, FIELD_OF_CAUSE[cause]) + number for cause, number in new.items()}
    return entry.model_copy(update=counted) if counted else entry


def _total(entry: InPlacePod) -> int:
    return sum(getattr(entry, name) for name in FIELD_OF_CAUSE.values())


def _with_ends(
    records: Sequence[InPlaceAttempt], entry: InPlacePod, account: InPlaceAccount, observed: Observed
) -> list[InPlaceAttempt]:
    """The records, with those of an account's ends that are counted; known values stay."""
    # The pod of process 0 may not have been known before.
    named = {"pod": entry.pod}
    records = [
        each.model_copy(update=named) if (each.attempt, each.pod) == (entry.attempt, "") and entry.pod else each
        for each in records
    ]
    by_key = {_key(each): each for each in records}
    for end in account.ends:
        if end.number > _total(entry) or not end.cause.is_restart:
            continue
        record = _record(entry, end, observed, is_last=end.number == account.total)
        before = by_key.get(_key(record))
        by_key[_key(record)] = record if before is None else _completed(before, record, end)
    return list(by_key.values())


def _completed(before: InPlaceAttempt, record: InPlaceAttempt, end: InPlaceEnd) -> InPlaceAttempt:
    missing = {
        name: getattr(record, name)
        for name in ("host", "exit_code", "time", "next_step", "seconds")
        if getattr(before, name) is None and getattr(record, name) is not None
    }
    if len(end.words) > len(before.message or ""):
        missing["message"] = record.message
    return before.model_copy(update=missing) if missing else before


def _record(entry: InPlacePod, end: InPlaceEnd, observed: Observed, *, is_last: bool) -> InPlaceAttempt:
    per_slice = _hosts_per_slice(observed)
    host = None if end.process is None else f"slice {end.process // per_slice} host {end.process % per_slice}"
    fields: Fields = {
        "host": host,
        "exit_code": end.exit_code,
        "time": end.at,
        "step": observed.status.step if end.step is None and is_last else end.step,
        "next_step": end.next_step,
        "seconds": end.seconds,
        "message": end.words[-MESSAGE_LENGTH:] or None,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    place: Fields = {"attempt": entry.attempt, "number": end.number, **({"pod": entry.pod} if entry.pod else {})}
    return InPlaceAttempt(cause=str(end.cause), **place, **known)
