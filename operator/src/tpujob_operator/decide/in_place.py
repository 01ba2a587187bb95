"""Attempts in the same pods, counted exactly once and under their causes, from what the pods tell of them.

What they tell is never believed beyond `spec.inPlaceRestarts` for one set of pods, and a number that falls changes
nothing. A set of pods has a name that Kubernetes gave, that of process 0's first pod: a report that starts again at
zero in a fresh pod is counted anew, one of pods that are gone is not counted twice, and one of a pod that took the
place of another goes on with that one's count. Any launcher tells of all, since process 0's pod may be gone with its
report.

A pod that was lost is told of as a disruption by the launchers that wait for its successor: they do not see what became
of it. The operator does: where nobody asked the pod to stop, it is a crash.

These restarts are free of `restarts.crashes`: their budget is `spec.inPlaceRestarts`. When that is used up the pods
end, which is one restart more and charged as any other.
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
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import RUNNING_PHASES, InPlaceAttempt, InPlacePod, Phase, Status
from tpujob_resource.models.times import EARLIEST

FIELD_OF_CAUSE: Mapping[Cause, str] = {
    Cause.CRASH: "crashes",
    Cause.UNEXPLAINED: "unexplained",
    Cause.DISRUPTION: "disruptions",
    Cause.SUSPENSION: "suspensions",
}
"""Of `InPlacePod`, in the order in which they are believed. Launchers count a suspension, which is no restart."""
MOST_PODS, MOST_ATTEMPTS = 4, 8
SKEW_SECONDS = 60
"""By which clocks of hosts may differ, and a machine be silent before it is taken for lost."""
MESSAGE_LENGTH = 500

type Fields = dict[str, Any]


def limit(observed: Observed) -> int:
    """How often the programs of one set of pods may have started again."""
    return observed.spec.in_place_restarts


def fields_after(status: Status, observed: Observed, phase: Phase) -> Fields:
    """Fields of the status that count restarts in the same pods, after what was seen; empty while there is no news.

    Args:
        status: With all restarts of the JobSet that were seen.
        observed: What was seen.
        phase: Of the job, after it.
    """
    jobset = observed.jobset
    if jobset is None or jobset.uid != observed.status.job_set_uid or not limit(observed):
        return {}
    pods = list(status.in_place_pods or ())
    records = list(status.in_place_attempts or ())
    found: Counter[Cause] = Counter()
    lead = _running_lead(observed, phase)
    explained = [_explained(told, observed) for told in observed.in_place]
    for told in sorted(explained, key=lambda told: (told.attempt, not told.is_lead)):
        place = _place_of(told, pods, lead)
        if place is None:
            continue
        new = _believed(pods[place], told.account, limit(observed))
        pods[place] = _with(pods[place], new)
        records = _with_ends(records, pods[place], told.account, observed)
        found += Counter({cause: number for cause, number in new.items() if cause.is_restart})
    # In their order, or what is left out here would come back at the end when it is told again.
    order = {(entry.attempt, entry.pod): place for place, entry in enumerate(pods)}
    records.sort(key=lambda each: (order.get((each.attempt, each.pod), -1), each.number))
    if not any(lead is not None and told.pod == lead.pod and told.account.lead for told in explained):
        _note_lead(pods, lead)
    fields: Fields = {"in_place_pods": pods[-MOST_PODS:] or None, "in_place_attempts": records[-MOST_ATTEMPTS:] or None}
    changed: Fields = {name: value for name, value in fields.items() if value != (getattr(status, name) or None)}
    if found:
        changed["in_place_total"] = (status.in_place_total or 0) + found.total()
    for cause in found:
        if not cause.is_charged:
            changed[cause.status_field] = (getattr(status, cause.status_field) or 0) + found[cause]
    return changed


def has_gone_on(observed: Observed, end: Ended | None) -> bool:
    """Whether an end that status recorded is overcome: all went on in place, and another pod is in its place."""
    if end is None or observed.jobset is None or end.attempt != observed.jobset.restarts:
        return False
    place = (end.slice_index, end.host_index)
    at = last_restart(observed.in_place, end.attempt)
    others = (host.pod for host in observed.hosts if (host.slice_index, host.host_index) == place)
    return at is not None and end.finished_at < at and any(pod != end.pod for pod in others)


def total(observed: Observed) -> int:
    """How often all programs have started again in the same pods, after what was seen."""
    counted = fields_after(observed.status, observed, Phase.FAILED).get("in_place_total")
    return int(counted or observed.status.in_place_total or 0)


def news(before: Status, after: Status) -> Iterator[InPlaceAttempt]:
    """The ends that one status knows of and an earlier one does not."""
    known = {_key(each) for each in before.in_place_attempts or ()}
    if (after.in_place_total or 0) > (before.in_place_total or 0):
        yield from (each for each in after.in_place_attempts or () if _key(each) not in known)


def cause_in_words(record: InPlaceAttempt) -> str:
    """The cause of a restart, to follow its number in a sentence."""
    cause = next((cause for cause in Cause if cause == record.cause), Cause.UNEXPLAINED)
    who = record.host or "a host"
    how = "" if record.exit_code is None else f" with exit code {record.exit_code}"
    words = f": {record.message}" if record.message else ""
    sentence = ended(f"{who} ended{how}{words}")
    return cause.template.format(sentence)


def _key(record: InPlaceAttempt) -> tuple[int, str, int]:
    return (record.attempt, record.pod, record.number)


def _place_of(told: PodAccount, pods: list[InPlacePod], lead: Host | None) -> int | None:
    """Which entry counts what a pod tells, made where there is none; None where it is of pods that are long gone.

    Entries beyond `MOST_PODS` are dropped. What is as old as the oldest entry may be of a dropped one, counted before.
    """
    for entry in list(pods):
        if entry.pod and entry.pod == told.account.lead and entry.attempt == told.attempt:
            # The pod that tells took the place of another one, and may have got an entry before it told anything.
            pods[:] = [each for each in pods if each is entry or each.pod != told.pod or _total(each)]
            return pods.index(entry)
    for place in reversed(range(len(pods))):
        entry = pods[place]
        if told.is_lead and entry.pod == told.pod:
            return place
        if entry.attempt == told.attempt and (not told.is_lead or not entry.pod):
            if told.is_lead:
                pods[place] = entry.model_copy(update={"pod": told.pod})
            return place
    may_be_dropped = len(pods) >= MOST_PODS and told.attempt <= pods[0].attempt
    if any(entry.attempt > told.attempt for entry in pods) or (
        may_be_dropped and (lead is None or lead.pod != told.pod)
    ):
        return None
    pods.append(InPlacePod(pod=told.pod if told.is_lead else "", attempt=told.attempt))
    return len(pods) - 1


def _explained(told: PodAccount, observed: Observed) -> PodAccount:
    """An account in which pods that were lost have the cause that Kubernetes shows."""
    counts, ends = Counter(told.account.counts), []
    for end in told.account.ends:
        if end.cause is Cause.DISRUPTION:
            seen = _ends_of(end, told.attempt, observed)
            is_crash = bool(seen) and not any(pod.was_asked or pod.is_consequence for pod in seen)
            # All pods that are deleted at once were suspended, by the operator or by Kueue.
            is_suspension = end.words == ALL_NEW and not is_crash and not any(pod.is_disrupted for pod in seen)
            cause = Cause.CRASH if is_crash else Cause.SUSPENSION if is_suspension else Cause.DISRUPTION
            counts[Cause.DISRUPTION] -= 1
            counts[cause] += 1
            end = replace(end, cause=cause)
        ends.append(end)
    return replace(told, account=replace(told.account, counts=+counts, ends=tuple(ends)))


def _ends_of(end: InPlaceEnd, attempt: int, observed: Observed) -> list[Ended]:
    """What was seen of the pod that was lost; where all were, of the last one in each place."""
    if end.process is None or end.at is None or end.again is None:
        return []
    place = divmod(end.process, _hosts_per_slice(observed))
    is_any = end.words == ALL_NEW
    # Of new launchers alone none knows when those before went: the moment is that of their meeting, minutes later.
    since = EARLIEST if is_any else end.at - timedelta(seconds=SKEW_SECONDS)
    seen = [
        pod
        for pod in (*observed.replaced, *observed.ended)
        if ((pod.slice_index, pod.host_index) == place or is_any)
        and pod.attempt == attempt
        and since <= pod.finished_at < end.again
    ]
    seen.sort(key=lambda pod: pod.finished_at)
    # The last one of each place: those before went at earlier restarts.
    return list({(pod.slice_index, pod.host_index): pod for pod in seen}.values())


def _hosts_per_slice(observed: Observed) -> int:
    return max(1, observed.jobset.hosts_per_slice if observed.jobset is not None else 1)


def _running_lead(observed: Observed, phase: Phase) -> Host | None:
    """The pod of process 0, while the job runs."""
    leads = (host for host in observed.hosts if (host.slice_index, host.host_index) == (0, 0))
    return next(leads, None) if phase in RUNNING_PHASES else None


def _note_lead(pods: list[InPlacePod], lead: Host | None) -> None:
    """Makes an entry for the pods that run, to which the others' words then belong."""
    if lead is not None:
        nothing_told = InPlaceAccount()
        _place_of(PodAccount(pod=lead.pod, attempt=lead.attempt, is_lead=True, account=nothing_told), pods, lead)


def _believed(entry: InPlacePod, account: InPlaceAccount, most: int) -> Counter[Cause]:
    """What an account adds to an entry, within the limit."""
    # Nor beyond what the account counts: the cause of a lost pod may be known at one look, and not at the next.
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
    """The records with what an account tells of the ends that are counted; what is known already stays."""
    # The pod of process 0 may have been unknown before.
    named = {"pod": entry.pod}
    records = [
        each.model_copy(update=named) if (each.attempt, each.pod) == (entry.attempt, "") and entry.pod else each
        for each in records
    ]
    by_key = {_key(each): each for each in records}
    for end in account.ends:
        if end.number > _total(entry) or not end.cause.is_restart:
            continue
        said = _record(entry, end, observed, is_last=end.number == account.total)
        before = by_key.get(_key(said))
        by_key[_key(said)] = said if before is None else _completed(before, said, end)
    return list(by_key.values())


def _completed(before: InPlaceAttempt, said: InPlaceAttempt, end: InPlaceEnd) -> InPlaceAttempt:
    missing = {
        name: getattr(said, name)
        for name in ("host", "exit_code", "time", "next_step", "seconds")
        if getattr(before, name) is None and getattr(said, name) is not None
    }
    if len(end.words) > len(before.message or ""):
        missing["message"] = said.message
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
