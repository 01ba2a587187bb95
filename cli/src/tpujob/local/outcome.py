"""The result of a run, from the exits of all its processes. Pure."""

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
    """Succeeded, Suspended (asked to stop, continues when run again), Failed, or Invalid (nothing was started)."""
    exit_code: int
    culprit: Exit | None
    """The process that failed first; None unless the job failed."""
    witness: Exit | None = None
    """The process whose message names the culprit, which may have left no message; None: the culprit ended first."""

    @property
    def reason(self) -> str:
        """The process that failed and its exit code, in one line; empty unless the run failed."""
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
    """The result of a run, from the exits of its processes.

    A process with an exit code that no retry would change (76–78) is the culprit, whenever it ended; else the first
    failure is: the later ones are peers that lost it. A process that was asked to stop is the culprit only if a peer
    names it, because it may have hung until its peers ended, or if it reports that it failed before.

    Args:
        exits: In the order of ending.
        named: Process → the process that its message names as the cause of its end.
        failed_at: Process → when its program failed, as Unix time, if that was before its end.
        stopped_at: Process → when its program, which ended with 75, was asked to stop, or ended.
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
    # The first was an exit with 75 (saved, start again) without a request: the ends of its peers follow from it.
    if not fatal and (not crashed or crashed[0].code == ExitCode.STOPPED):
        return Outcome(phase="Suspended", exit_code=int(ExitCode.STOPPED), culprit=None)
    first = (fatal or crashed)[0]
    culprit = _named_by(first, failures, named or {})
    if culprit is None:
        return Outcome(phase="Failed", exit_code=first.code, culprit=first)
    # If it was asked to stop while it was ending, an exit code is still its own, but a signal may be from the request.
    own_end = culprit.code != ExitCode.STOPPED and (not culprit.asked_to_stop or culprit.code < BY_SIGNAL)
    return Outcome(phase="Failed", exit_code=culprit.code if own_end else first.code, culprit=culprit, witness=first)


def _head_start(end: Exit) -> float:
    """Seconds by which a killed process, or one that asks for another start, is ranked before other failures."""
    comes_first = end.code in (*KILLED_FROM_OUTSIDE, ExitCode.STOPPED)
    return KILLED_FIRST_SECONDS if comes_first and not end.asked_to_stop else 0.0


def _named_by(first: Exit, failures: Sequence[Exit], named: Mapping[int, int]) -> Exit | None:
    """The failure that the message of the first one names as its cause; None: there is none."""
    other = named.get(first.process.index)
    return next((each for each in failures if each.process.index == other and each is not first), None)


def summary(
    outcome: Outcome, report: Mapping[str, Any], *, processes: int, cause: str = "", warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The one JSON object that `tpujob run -o json` ends with, whatever the result.

    Args:
        outcome: The result of the run.
        report: The last report of process 0; may be empty.
        processes: How many were started.
        cause: Why it failed or was refused, in words; else empty.
        warnings: About valid but probably unintended settings of the job.
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
