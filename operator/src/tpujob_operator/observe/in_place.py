"""Reads the accounts of attempts in the same pods: from the report of process 0, and from any termination message.

The user's pods write them: invalid numbers are dropped here, and `decide.in_place` limits how much valid ones count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tpujob_contract.reports import in_place
from tpujob_operator.observe.untrusted import clean_text
from tpujob_resource.models.restart_causes import Cause

WORDS_LENGTH = 500
NAME_LENGTH = 253
MOST = 1000
"""The highest valid number of restarts in place: no spec allows more."""
BEFORE_THE_FIRST_STEP = ("starting", "restoring", "compiling")
"""Phases of a report before an attempt's first step."""
CAUSES: Mapping[str, Cause] = {
    in_place.CRASH: Cause.CRASH,
    in_place.DISRUPTION: Cause.DISRUPTION,
    in_place.UNEXPLAINED: Cause.UNEXPLAINED,
}


@dataclass(frozen=True, kw_only=True)
class InPlaceEnd:
    """The end of an attempt after which all programs started again in the same pods; None: unknown."""

    number: int
    """Of the restart that followed, from 1."""
    cause: Cause
    process: int | None = None
    """The process whose program failed first."""
    exit_code: int | None = None
    at: datetime | None = None
    again: datetime | None = None
    """When the programs started again, cut to the second as in Kubernetes: a pod that ended in it ended after that."""
    step: int | None = None
    """Steps done, as process 0 reported at its end."""
    next_step: int | None = None
    """The step from which the next attempt continued."""
    seconds: int | None = None
    """From the failure to the first step after it."""
    words: str = ""
    """The last lines of the program that failed, or the cause in one line."""


@dataclass(frozen=True, kw_only=True)
class InPlaceAccount:
    """The account of one launcher: the number of ends for each cause, and details of the last ones."""

    counts: Mapping[Cause, int] = field(default_factory=dict)
    ends: tuple[InPlaceEnd, ...] = ()
    lead: str = ""
    """The first pod of launcher 0, which identifies the set of pods; empty: the current pod of process 0 does."""

    @property
    def total(self) -> int:
        """How often all programs have started again."""
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True)
class PodAccount:
    """The account of a pod."""

    pod: str
    attempt: int
    """JobSet's restart attempt, from 0."""
    is_lead: bool
    """Whether it is the pod of process 0."""
    account: InPlaceAccount


def last_restart(accounts: Iterable[PodAccount], attempt: int) -> datetime | None:
    """When the programs last started again in the pods of an attempt of the JobSet; None: never."""
    times = (end.again for each in accounts if each.attempt == attempt for end in each.account.ends)
    return max((at for at in times if at is not None), default=None)


def account_from_json(given: Any) -> InPlaceAccount | None:
    """The account in a decoded JSON value; None: it is invalid, or all its counts are 0."""
    if not isinstance(given, dict) or not isinstance(given.get("counts"), dict):
        return None
    counts = {cause: _count(given["counts"].get(word)) or 0 for word, cause in CAUSES.items()}
    listed = given.get("ends")
    read = [_end(each) for each in listed[-in_place.MOST_ENDS :]] if isinstance(listed, list) else []
    lead = clean_text(given.get("lead"), limit=NAME_LENGTH)
    found = InPlaceAccount(counts={cause: count for cause, count in counts.items() if count}, lead=lead)
    by_number = {end.number: end for end in read if end is not None and end.number <= found.total}
    return replace(found, ends=tuple(by_number[number] for number in sorted(by_number))) if found.total else None


def account_from_message(termination_message: str) -> InPlaceAccount | None:
    """The account at the end of a termination message; None: there is none."""
    return account_from_json(in_place.split(termination_message)[1])


def account_from_report(report: Mapping[str, Any]) -> InPlaceAccount | None:
    """The account in a report, with the report's own details of the running attempt.

    An older launcher reports only the number of restarts, and the cause of the last one.
    """
    found = account_from_json(report.get("in_place"))
    if found is None:
        number = _count(report.get("in_place_restarts"))
        if not number:
            return None
        words = clean_text(report.get("in_place_cause"), limit=WORDS_LENGTH)
        last = InPlaceEnd(number=number, cause=Cause.CRASH, words=words)
        found = InPlaceAccount(counts={Cause.CRASH: number}, ends=(last,))
    if not found.ends or found.ends[-1].number != found.total or not _count(report.get("attempt_steps")):
        return found
    last = found.ends[-1]
    next_step = _count(report.get("restored_from"), most=2**53) or 0
    last = replace(last, next_step=next_step, seconds=_seconds(last, report.get("seconds")))
    return replace(found, ends=(*found.ends[:-1], last))


def _seconds(end: InPlaceEnd, phases: Any) -> int | None:
    """From a failure to the first step after it: until the programs started again, and from there to the step."""
    if end.at is None or end.again is None or end.again < end.at or not isinstance(phases, dict):
        return None
    spent = [_count(phases.get(phase, 0), most=2**31) for phase in BEFORE_THE_FIRST_STEP]
    return round((end.again - end.at).total_seconds()) + sum(each or 0 for each in spent)


def _end(given: Any) -> InPlaceEnd | None:
    if not isinstance(given, dict):
        return None
    number, cause = _count(given.get("number")), given.get("cause")
    if not number or not isinstance(cause, str) or cause not in CAUSES:
        return None
    return InPlaceEnd(
        number=number,
        cause=CAUSES[cause],
        process=_count(given.get("process"), most=2**20),
        exit_code=_count(given.get("code"), most=255),
        at=_time(given.get("at")),
        again=_time(given.get("again")),
        step=_count(given.get("step"), most=2**53),
        words=clean_text(given.get("words") or given.get("line"), limit=WORDS_LENGTH).strip(),
    )


def _count(value: Any, *, most: int = MOST) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value)


def _time(value: Any) -> datetime | None:
    seconds = _count(value, most=2**33)
    return None if not seconds else datetime.fromtimestamp(seconds, UTC)
