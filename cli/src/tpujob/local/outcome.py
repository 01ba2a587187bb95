"""What the endings of all processes mean together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob.local.supervisor import Exit
from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, describe


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run."""

    phase: str
    """Succeeded, Suspended (asked to stop, goes on when run again), Failed, or Invalid (nothing was started)."""
    exit_code: int
    culprit: Exit | None
    """The process that failed first; None unless the job failed."""

    @property
    def reason(self) -> str:
        """Who failed and how, in one line."""
        if self.culprit is None:
            return ""
        process = self.culprit.process
        return f"process {process.index} ({process.name}): exit code {describe(self.culprit.code)}"


def judge(exits: Sequence[Exit]) -> Outcome:
    """What a run came to, from the endings in their order.

    A code that no retry would change (76–78) names the culprit whenever it came; else it is the first failure: what
    follows are peers that lost it. A process that had been told to stop is nobody's culprit, whoever told it.
    """
    failures = [e for e in exits if e.code != ExitCode.FINISHED]
    if not failures:
        return Outcome(phase="Succeeded", exit_code=0, culprit=None)
    fatal = [e for e in failures if e.code in FATAL]
    crashed = [e for e in failures if not e.asked_to_stop and e.code != ExitCode.STOPPED]
    if not fatal and not crashed:
        return Outcome(phase="Suspended", exit_code=int(ExitCode.STOPPED), culprit=None)
    culprit = (fatal or crashed)[0]
    return Outcome(phase="Failed", exit_code=culprit.code, culprit=culprit)


def summary(
    outcome: Outcome, report: Mapping[str, Any], *, processes: int, cause: str = "", warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The one JSON object that `tpujob run -o json` ends with, whatever came of the run.

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
