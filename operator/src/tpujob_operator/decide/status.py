"""The status that a verdict makes of the recorded one. What is unknown here (a newer operator's fields) is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from tpujob_operator.api.conditions import TERMINAL, Reason
from tpujob_operator.api.status import Phase
from tpujob_operator.decide import attempt_cause, restart_accounting
from tpujob_operator.decide.attempt_cause import Cause
from tpujob_operator.decide.disruption_record import disruption_to_record
from tpujob_operator.decide.first_failure import first_failure
from tpujob_operator.decide.status_conditions import conditions_after
from tpujob_operator.decide.verdict import Step, Verdict
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Observed
from tpujob_operator.settings import Settings
from tpujob_operator.times import format_time, parse_time

LOSS_DIGITS = 6


def written(observed: Observed, verdict: Verdict, settings: Settings) -> dict[str, Any]:
    """The whole status to be recorded; equal to the recorded one when nothing has changed."""
    status = dict(observed.status)
    status["observedGeneration"] = observed.generation
    if verdict.reason is Reason.ENDED:
        return status
    if observed.spec.get("retry"):
        status["retry"] = observed.spec["retry"]
    if verdict.renew:
        is_new_run = verdict.reason in (Reason.EDITED, Reason.RETRIED)
        return _renewed(status, verdict, OF_THE_JOB if is_new_run else (*OF_THE_JOB, *ALSO_OVER_A_REST))
    before = status.get("phase")
    status |= {"phase": str(verdict.phase), "message": verdict.message}
    status["conditions"] = conditions_after(observed, verdict)
    _record_jobset(status, observed, verdict)
    status |= restart_accounting.account(observed)
    _count_hosts(status, observed, verdict)
    if observed.progress is not None:
        status |= _progress(observed.progress)
    _set_times(status, observed, verdict, before)
    failure = None if verdict.phase is Phase.SUCCEEDED else first_failure(observed)
    if failure is not None:
        status["failure"] = failure
    else:
        status.pop("failure", None)
    _record_disruption(status, observed, verdict)
    if verdict.phase is Phase.SUCCEEDED and status.get("steps") is not None:
        # The last report was read seconds before the end; exit code 0 of every process says that all steps were made.
        status["step"] = status["steps"]
    changed = set(difference(observed.status, status))
    if changed <= ALWAYS_MOVING or (changed <= PROGRESS and not _is_progress_due(observed, settings)):
        return dict(observed.status)
    return status


def _is_progress_due(observed: Observed, settings: Settings) -> bool:
    """Whether enough time has passed since a step was last written; the first one is written at once."""
    last = parse_time(observed.status.get("stepTime"))
    if last is None or observed.status.get("step") is None:
        return True
    # Times are written in whole seconds.
    return observed.now - last >= timedelta(seconds=settings.progress_interval_seconds - 1)


ALWAYS_MOVING = {"goodput", "dataWaitFraction"}
"""Not worth a write of their own: a job that compiles, or stands still, would be written every few seconds."""

PROGRESS = ALWAYS_MOVING | {
    "step",
    "steps",
    "stepTime",
    "loss",
    "tokensPerSecond",
    "lastCheckpointStep",
    "lastCheckpointTime",
}
"""Written at intervals: each write costs the API server and everybody who watches."""

OF_THE_JOB = (
    "observedGeneration",
    "retry",
    "hosts",
    "step",
    "steps",
    "lastCheckpointStep",
    "lastCheckpointTime",
    "goodput",
)
"""What a new incarnation takes over: what is in the checkpoint directory, and what the next look needs."""


ALSO_OVER_A_REST = ("startTime", "crashes", "crashedAtStep")
"""What one takes over beside it whose spec is the same: the deadline and the budget of crashes go on."""


def _renewed(status: Mapping[str, Any], verdict: Verdict, keys: Iterable[str]) -> dict[str, Any]:
    kept = {key: status[key] for key in keys if key in status}
    incarnation = (status.get("incarnation") or 1) + 1
    return {**kept, "phase": str(verdict.phase), "message": verdict.message, "incarnation": incarnation}


def difference(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one of the other, empty when they are equal."""
    patch = {key: value for key, value in wanted.items() if recorded.get(key) != value}
    return patch | {key: None for key in recorded if key not in wanted}


def _record_jobset(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    if verdict.record:
        assert observed.jobset is not None  # `record` comes with one
        status |= {"jobSet": observed.jobset.name, "jobSetUid": observed.jobset.uid}
        status["incarnation"] = observed.jobset.incarnation
        if observed.jobset.spec_hash is not None:
            status["specHash"] = observed.jobset.spec_hash
    if verdict.step is Step.CREATE:
        status.pop("acceleratorNote", None)
        if verdict.accelerator_note is not None:
            status["acceleratorNote"] = verdict.accelerator_note


def _record_disruption(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    status.pop("disruption", None)
    found = None if verdict.phase is Phase.SUCCEEDED else disruption_to_record(observed)
    if found is not None and attempt_cause.of_attempt(observed, found["attempt"]).cause is Cause.DISRUPTION:
        status["disruption"] = found


def _count_hosts(status: dict[str, Any], observed: Observed, verdict: Verdict) -> None:
    hosts = verdict.hosts if observed.jobset is None else observed.jobset.hosts
    if hosts is not None:
        status["hosts"] = hosts
    if verdict.hosts_ready is not None:
        status["hostsReady"] = verdict.hosts_ready
    restarts = 0 if observed.jobset is None else restart_accounting.restarts(status, observed.jobset)
    if restarts:
        status["restarts"] = restarts
    if "hosts" in status:
        status["ready"] = f"{status.get('hostsReady', 0)}/{status['hosts']}"  # one column for kubectl get


def _set_times(status: dict[str, Any], observed: Observed, verdict: Verdict, before: str | None) -> None:
    status.pop("nextRestartTime", None)
    if verdict.next_restart is not None:
        status["nextRestartTime"] = format_time(verdict.next_restart)
    if verdict.phase is Phase.RUNNING:
        status.setdefault("startTime", format_time(observed.now))
        if before not in (Phase.RUNNING, Phase.STALLED) or status.get("step") != observed.status.get("step"):
            status["stepTime"] = format_time(observed.now)
    if verdict.phase in TERMINAL:
        at = observed.jobset.outcome_at if observed.jobset is not None else None
        status.setdefault("completionTime", format_time(at or observed.now))


def _progress(progress: Progress) -> dict[str, Any]:
    fields = {
        "step": progress.step,
        "steps": progress.steps,
        "loss": None if progress.loss is None else round(progress.loss, LOSS_DIGITS),
        "tokensPerSecond": None if progress.tokens_per_second is None else round(progress.tokens_per_second),
        "lastCheckpointStep": progress.committed_step,
        "lastCheckpointTime": None if progress.committed_at is None else format_time(progress.committed_at),
        "dataWaitFraction": None if progress.data_wait_fraction is None else round(progress.data_wait_fraction, 2),
        "goodput": dict(progress.goodput) or None,
    }
    # What a report leaves out (a process that has just restarted) does not erase what is known.
    return {key: value for key, value in fields.items() if value is not None}
