"""The status that a verdict makes of the recorded one. What is unknown here (a newer operator's fields) is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_operator import budget
from tpujob_operator.conditions import TERMINAL, Reason, Type, sentence, set_condition
from tpujob_operator.failures import first_failure
from tpujob_operator.observed import Observed, Progress, format_time
from tpujob_operator.resource_status import Phase
from tpujob_operator.verdict import Verdict

LOSS_DIGITS = 6


def written(observed: Observed, verdict: Verdict) -> dict[str, Any]:
    """The whole status to be recorded; equal to the recorded one when nothing has changed."""
    status = dict(observed.status)
    status["observedGeneration"] = observed.generation
    if verdict.reason is Reason.ENDED:
        return status
    status |= {"phase": str(verdict.phase), "message": verdict.message}
    status["conditions"] = _conditions(observed, verdict)
    _record_jobset(status, observed, verdict)
    _count_hosts(status, observed, verdict)
    status |= budget.account(observed)
    if observed.progress is not None:
        status |= _progress(observed.progress)
    _set_times(status, observed, verdict)
    failure = None if verdict.phase is Phase.SUCCEEDED else first_failure(observed)
    if failure is not None:
        status["failure"] = failure
    else:
        status.pop("failure", None)
    if verdict.phase is Phase.SUCCEEDED and status.get("steps") is not None:
        # The last report was read seconds before the end; exit code 0 of every process says that all steps were made.
        status["step"] = status["steps"]
    return status


def difference(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one of the other, empty when they are equal."""
    patch = {key: value for key, value in wanted.items() if recorded.get(key) != value}
    return patch | {key: None for key in recorded if key not in wanted}


def _conditions(observed: Observed, verdict: Verdict) -> list[dict[str, Any]]:
    conditions = [dict(c) for c in observed.status.get("conditions") or []]
    common: dict[str, Any] = {"generation": observed.generation, "now": observed.now}
    if verdict.valid is not None:
        reason = Reason.ACCEPTED if verdict.valid else Reason.REJECTED
        message = sentence(Reason.ACCEPTED) if verdict.valid else verdict.message
        conditions = set_condition(
            conditions, Type.VALID, status=verdict.valid, reason=reason, message=message, **common
        )
    is_running = verdict.phase is Phase.RUNNING
    if verdict.phase is not Phase.INVALID:
        ended = verdict.phase in TERMINAL
        reason, message = (Reason.ENDED, sentence(Reason.ENDED)) if ended else (verdict.reason, verdict.message)
        conditions = set_condition(
            conditions, Type.RUNNING, status=is_running, reason=reason, message=message, **common
        )
    if verdict.blocked is not None:
        reason, message = verdict.blocked
        conditions = set_condition(conditions, Type.BLOCKED, status=True, reason=reason, message=message, **common)
    elif any(c["type"] == Type.BLOCKED for c in conditions):
        message = sentence(Reason.UNBLOCKED)
        conditions = set_condition(
            conditions, Type.BLOCKED, status=False, reason=Reason.UNBLOCKED, message=message, **common
        )
    if verdict.phase in TERMINAL:
        kind = Type.SUCCEEDED if verdict.phase is Phase.SUCCEEDED else Type.FAILED
        conditions = set_condition(
            conditions, kind, status=True, reason=verdict.reason, message=verdict.message, **common
        )
    return conditions


def _record_jobset(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    if verdict.record:
        assert observed.jobset is not None  # said by the verdict
        status |= {"jobSet": observed.jobset.name, "jobSetUid": observed.jobset.uid}
        status.setdefault("incarnation", 1)


def _count_hosts(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    hosts = verdict.hosts if observed.jobset is None else observed.jobset.hosts
    if hosts is not None:
        status["hosts"] = hosts
    if verdict.hosts_ready is not None:
        status["hostsReady"] = verdict.hosts_ready
    if observed.jobset is not None and observed.jobset.restarts:
        status["restarts"] = observed.jobset.restarts
    if "hosts" in status:
        status["ready"] = f"{status.get('hostsReady', 0)}/{status['hosts']}"  # one column for kubectl get


def _set_times(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    if verdict.phase is Phase.RUNNING:
        status.setdefault("startTime", format_time(observed.now))
    if verdict.phase in TERMINAL:
        at = observed.jobset.outcome_at if observed.jobset is not None else None
        status.setdefault("completionTime", format_time(at or observed.now))


def _progress(progress: Progress) -> dict[str, Any]:
    said = {
        "step": progress.step,
        "steps": progress.steps,
        "loss": None if progress.loss is None else round(progress.loss, LOSS_DIGITS),
        "tokensPerSecond": None if progress.tokens_per_second is None else round(progress.tokens_per_second),
        "lastCheckpointStep": progress.committed_step,
        "lastCheckpointTime": None if progress.committed_at is None else format_time(progress.committed_at),
    }
    # What a report leaves out (a process that has just restarted) does not erase what is known.
    return {key: value for key, value in said.items() if value is not None}
