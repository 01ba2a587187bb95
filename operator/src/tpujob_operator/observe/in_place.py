"""Reads the launchers' account of restarts in the same pods: from a report, and from any termination message.

The user's pods write it: invalid values are dropped here, and `decide.in_place` limits how much valid ones count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tpujob_contract.reports import in_place
from tpujob_operator.observe.untrusted import clean_text, read_time, whole_number
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.times import EARLIEST

WORDS_LENGTH = 500
MOST = 1000
"""The highest valid number of restarts in place: no spec allows more."""
BEFORE_THE_FIRST_STEP = ("starting", "restoring", "compiling")
"""Phases of a report before an attempt's first step."""
CAUSES: Mapping[str, Cause] = {
    in_place.CRASH: Cause.CRASH,
    in_place.UNEXPLAINED: Cause.UNEXPLAINED,
    in_place.DISRUPTION: Cause.DISRUPTION,
}


@dataclass(frozen=True, kw_only=True)
class InPlaceEnd:
    """The end of the attempt before the last restart in the same pods; None: unknown."""

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
    """How often all programs have started again in a set of pods, as one of them reports it."""

    counts: Mapping[Cause, int]
    last: InPlaceEnd | None = None
    lead: str = ""
    """A pod of process 0, which identifies the set."""
    attempt: int = 0
    """JobSet's restart attempt of the pod that reports it, from 0."""
    created_at: datetime = EARLIEST
    """When that pod was created."""
    is_lead: bool = False
    """Whether it is the pod of process 0."""

    @property
    def total(self) -> int:
        """The restarts of all causes."""
        return sum(self.counts.values())


def last_restart(accounts: Iterable[InPlaceAccount], attempt: int) -> datetime | None:
    """When the programs last started again in the pods of an attempt of the JobSet; None: never."""
    times = (each.last.again for each in accounts if each.attempt == attempt and each.last is not None)
    return max((at for at in times if at is not None), default=None)


def account_from_json(given: Any) -> InPlaceAccount | None:
    """The account in a decoded JSON value; None: it is invalid, or all its counts are 0."""
    account = in_place.checked(given)
    counts = {CAUSES[word]: count for word, count in account.get("counts", {}).items() if count <= MOST}
    lead = clean_text(account.get("lead"), limit=in_place.NAME_CHARACTERS)
    return InPlaceAccount(counts=counts, lead=lead, last=_end(account.get("last"))) if counts else None


def account_from_message(termination_message: str) -> InPlaceAccount | None:
    """The account at the end of a termination message; None: there is none."""
    return account_from_json(in_place.split(termination_message)[1])


def account_from_report(report: Mapping[str, Any]) -> InPlaceAccount | None:
    """The account in a report, with the report's own details of the running attempt; None: it has none."""
    found = account_from_json(report.get("in_place"))
    if found is None or found.last is None or not whole_number(report.get("attempt_steps")):
        return found
    next_step = whole_number(report.get("restored_from")) or 0
    last = replace(found.last, next_step=next_step, seconds=_seconds(found.last, report.get("seconds")))
    return replace(found, last=last)


def _seconds(end: InPlaceEnd, phases: Any) -> int | None:
    """From a failure to the first step after it: until the programs started again, and from there to the step."""
    if end.at is None or end.again is None or end.again < end.at or not isinstance(phases, dict):
        return None
    spent = sum(whole_number(phases.get(phase), below=2**31) or 0 for phase in BEFORE_THE_FIRST_STEP)
    return round((end.again - end.at).total_seconds()) + spent


def _end(given: in_place.End | None) -> InPlaceEnd | None:
    if given is None:
        return None
    return InPlaceEnd(
        cause=CAUSES[given["cause"]],
        process=whole_number(given.get("process"), below=2**20),
        exit_code=whole_number(given.get("code"), below=256),
        at=read_time(whole_number(given.get("at"))),
        again=read_time(whole_number(given.get("again"))),
        step=whole_number(given.get("step")),
        words=clean_text(given.get("words") or given.get("line"), limit=WORDS_LENGTH).strip(),
    )
