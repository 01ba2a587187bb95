"""The result of a run, from the exits of all its processes, and another run after a failure that it may fix."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob.local.supervisor import BY_SIGNAL, Exit
from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, describe
from tpujob_contract.reports.first_end import ProcessEnd, first_of
from tpujob_contract.reports.termination_message import failed_at, named_in, stopped_at
from tpujob_resource.models.phases import Phase


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run."""

    phase: str
    """Succeeded, Suspended (asked to stop, continues when run again), Failed, or Invalid (nothing was started)."""
    exit_code: int
    culprit: Exit | None
    """The process that failed first; None unless the job failed."""
    witness: Exit | None = None
    """The process whose message names the culprit, which may have left no message; None: none does."""

    @property
    def reason(self) -> str:
        """The process that failed and its exit code, in one line; empty unless the run failed."""
        if self.culprit is None:
            return ""
        process = self.culprit.process
        return f"process {process.index} ({process.name}): exit code {describe(self.culprit.code)}"


def judge(exits: Sequence[Exit], messages: Mapping[int, str] | None = None) -> Outcome:
    """The result of a run, from the exits of its processes.

    The culprit is the process that failed first, or the one that its message names as the cause: that one may have
    hung until its peers ended, and was asked to stop then.

    Args:
        exits: In the order of ending.
        messages: The termination message of each process that left one, by the process's index.
    """
    ends = [_Failure(each, (messages or {}).get(each.process.index, "")) for each in exits]
    failures = [each for each in ends if each.exit.code != ExitCode.FINISHED]
    if not failures:
        return Outcome(phase=Phase.SUCCEEDED, exit_code=0, culprit=None)
    first = first_of(failures, lambda each: each.known)
    # The first was an exit with 75 (saved, start again) without a request: the ends of its peers follow from it.
    if first.exit.code not in FATAL and (first.was_stopped or first.exit.code == ExitCode.STOPPED):
        return Outcome(phase=Phase.SUSPENDED, exit_code=int(ExitCode.STOPPED), culprit=None)
    culprit = next((each for each in failures if each.exit.process.index == first.names), first).exit
    witnesses = [each for each in failures if each.names == culprit.process.index]
    witness = first_of(witnesses, lambda each: each.known).exit if witnesses else None
    # If it was asked to stop while it was ending, an exit code is still its own, but a signal may be from the request.
    own_end = culprit.code != ExitCode.STOPPED and (not culprit.asked_to_stop or culprit.code < BY_SIGNAL)
    code = culprit.code if own_end else first.exit.code
    return Outcome(phase=Phase.FAILED, exit_code=code, culprit=culprit, witness=witness)


@dataclass(frozen=True)
class _Failure:
    """The exit of a process, with its termination message."""

    exit: Exit
    message: str

    @property
    def own_time(self) -> float | None:
        """When its program failed, or ended with 75, by its own account, as Unix time; None: it gives none."""
        stopped = stopped_at(self.message) if self.exit.code == ExitCode.STOPPED else None
        return failed_at(self.message) or stopped

    @property
    def names(self) -> int | None:
        """The other process that its message names as the cause of its end; None: there is none."""
        named = named_in(self.message)
        return None if named == self.exit.process.index else named

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because it was asked to stop."""
        return self.exit.asked_to_stop and self.own_time is None

    @property
    def known(self) -> ProcessEnd:
        """What is known about it, for the judgement of which one was first."""
        return ProcessEnd(
            self.exit.code,
            self.exit.ended_at if self.own_time is None else self.own_time,
            names_another=self.names is not None,
            was_asked=self.exit.asked_to_stop,
            is_own_time=self.own_time is not None,
        )


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
        "phase": str(outcome.phase),
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


FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0

Attempt = Callable[[int], tuple[int, dict[str, Any]]]
"""Runs the attempt with this number."""


def run_with_restarts(
    attempt: Attempt, restarts: int, *, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep
) -> tuple[int, dict[str, Any]]:
    """Runs a job with restarts; returns the exit code and the summary of the last attempt.

    Args:
        attempt: Runs the job to its end, given how often it has run before.
        restarts: How many restarts in a row are made without a newer checkpoint.
        say: Prints a line.
        pause: Waits this many seconds, longer each time, so that other machines can come back.
    """
    failures, committed = 0, None
    for number in itertools.count():
        exit_code, summary = attempt(number)
        if exit_code in (ExitCode.FINISHED, ExitCode.STOPPED, *FATAL):
            break
        if (newest := summary.get("committed_step")) is not None and newest != committed:
            failures, committed = 0, newest
        if failures >= restarts:
            break
        failures += 1
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        say(f"exit code {describe(exit_code)}: restart {failures} of {restarts} in {seconds:.0f} s; Ctrl-C ends it")
        try:
            pause(seconds)
        except KeyboardInterrupt:
            break
    return exit_code, summary
