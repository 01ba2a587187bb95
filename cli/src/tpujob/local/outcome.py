"""What the endings of all processes mean together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob.local.supervisor import BY_SIGNAL, Exit
from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, KILLED_FIRST_SECONDS, KILLED_FROM_OUTSIDE, describe


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run."""

    phase: str
    """Succeeded, Suspended (asked to stop, goes on when run again), Failed, or Invalid (nothing was started)."""
    exit_code: int
    culprit: Exit | None
    """The process that failed first; None unless the job failed."""
    witness: Exit | None = None
    """Whose message names the culprit, where the culprit itself may have left none; None: the culprit ended first."""

    @property
    def reason(self) -> str:
        """Who failed and how, in one line."""
        if self.culprit is None:
            return ""
        process = self.culprit.process
        return f"process {process.index} ({process.name}): exit code {describe(self.culprit.code)}"


def judge(
    exits: Sequence[Exit],
    named: Mapping[int, int] | None = None,
    failed_at: Mapping[int, float] | None = None,
    stopped_at: Mapping[int, float] | None = None,
) -> Outcome:
    """The result of a run, from the endings in their order.

    A code that no retry would change (76–78) names the culprit whenever it came; else it is the first failure: what
    follows are peers that lost it. A process that was asked to stop is not the culprit unless a peer names it, or it
    says itself that it failed before that: it may have hung, so that its peers ended before it.

    Args:
        exits: In the order of ending.
        named: Process → the one that its message names as the cause of its end.
        failed_at: Process → when its program failed, as Unix time, where that was before its end.
        stopped_at: Process → when a program that ended with 75 was asked to stop, or ended.
    """
    failed_at, stopped_at = failed_at or {}, stopped_at or {}
    moments = {**stopped_at, **failed_at}
    failures = [e for e in exits if e.code != ExitCode.FINISHED]
    if not failures:
        return Outcome(phase="Succeeded", exit_code=0, culprit=None)
    fatal = [e for e in failures if e.code in FATAL]
    crashed = [
        e
        for e in failures
        if not e.asked_to_stop or e.process.index in (stopped_at if e.code == ExitCode.STOPPED else failed_at)
    ]
    crashed.sort(key=lambda each: moments.get(each.process.index, each.ended_at) - _head_start(each))
    # "Saved, start me again" that nobody asked for: what its peers say after it follows from it.
    if not fatal and (not crashed or crashed[0].code == ExitCode.STOPPED):
        return Outcome(phase="Suspended", exit_code=int(ExitCode.STOPPED), culprit=None)
    first = (fatal or crashed)[0]
    culprit = _named_by(first, failures, named or {})
    if culprit is None:
        return Outcome(phase="Failed", exit_code=first.code, culprit=first)
    # Asked to stop while it was ending: a code of its own is still its own, death by a signal need not be.
    own_end = culprit.code != ExitCode.STOPPED and (not culprit.asked_to_stop or culprit.code < BY_SIGNAL)
    return Outcome(phase="Failed", exit_code=culprit.code if own_end else first.code, culprit=culprit, witness=first)


def _head_start(end: Exit) -> float:
    """Seconds by which a killed process, or one that asks for another start, goes before what follows from it."""
    comes_first = end.code in (*KILLED_FROM_OUTSIDE, ExitCode.STOPPED)
    return KILLED_FIRST_SECONDS if comes_first and not end.asked_to_stop else 0.0


def _named_by(first: Exit, failures: Sequence[Exit], named: Mapping[int, int]) -> Exit | None:
    """The failure that the first one is an echo of."""
    other = named.get(first.process.index)
    return next((each for each in failures if each.process.index == other and each is not first), None)


def summary(
    outcome: Outcome, report: Mapping[str, Any], *, processes: int, cause: str = "", warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The one JSON object that `tpujob run -o json` ends with, whatever the result.

    Args:
        outcome: What it came to.
        report: The last report of process 0; may be empty.
        processes: How many were started.
        cause: Why it failed or was refused, in words; else empty.
        warnings: What is allowed in the job and probably not meant.
    """
    return {
        "phase": outcome.phase,
        "step": report.get("step"),
        "steps": report.get("steps"),
        "loss_first": report.get("loss_first"),
        "loss_last": report.get("loss"),
        "tokens_per_second": report.get("tokens_per_second"),
        "checkpoint": report.get("checkpoint"),
        "committed_step": report.get("committed_step"),
        "restored_from": report.get("restored_from"),
        "processes": processes,
        "exit_code": outcome.exit_code,
        "cause": cause or None,
        "warnings": list(warnings),
        "message": outcome.reason or report.get("message") or "",
    }
