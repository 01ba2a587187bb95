"""The progress in status: the figures that process 0 reports, and when they are written."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide import in_place
from tpujob_operator.decide.causes.restart_accounting import recorded_between
from tpujob_operator.decide.checks.stall import reported_step
from tpujob_operator.decide.verdict import Step, Verdict
from tpujob_operator.observe.report import Progress, UnitCounts
from tpujob_operator.observe.state import Observed
from tpujob_resource.models.phases import RUNNING_PHASES, TERMINAL
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import Status, Units

LOSS_DIGITS = 6

type Fields = dict[str, Any]
"""Fields of a status by their paths, for `Status.updated`."""

ALWAYS_MOVING = {"progress.goodput", "progress.dataWaitFraction"}
"""Fields that are not written alone: the status of a job that compiles, or hangs, would change every few seconds."""

PROGRESS = ALWAYS_MOVING | {
    "step",
    "steps",
    "progress.stepTime",
    "progress.loss",
    "progress.tokensPerSecond",
    "lastCheckpointStep",
    "lastCheckpointTime",
    "progress.units",
    "progress.stragglerMessage",
}
"""Fields that are written at intervals: each write costs the API server and all watchers."""

OF_THE_ATTEMPT = {
    # field of a report: field of the status
    "straggler_message": "progress.straggler_message",
    "preflight_message": "progress.preflight_message",
    "in_place_restarts": "restarts.in_these_pods",
    "in_place_cause": "restarts.in_place_cause",
}

FIGURES = ("progress.loss", "progress.tokens_per_second", "progress.data_wait_fraction")
"""Figures of the current attempt's steps."""


def is_due(observed: Observed, settings: Settings) -> bool:
    """Whether enough time has passed since a step was last written; the first one is written at once."""
    last = observed.status.progress.step_time
    if last is None or observed.status.step is None:
        return True
    # Times are written in whole seconds.
    return observed.now - last >= timedelta(seconds=settings.progress_interval_seconds - 1)


def after(status: Status, observed: Observed, verdict: Verdict) -> Fields:
    """Fields of the status that the report sets or clears.

    Args:
        status: With all observed restarts.
        observed: The observation, with the report.
        verdict: On the observation.
    """
    ended = at_next_attempt(status) if are_processes_gone(status, observed, verdict) else {}
    fields = {**ended, **_known(status.updated(ended), observed, verdict)}
    if verdict.condition_update.phase not in RUNNING_PHASES:
        # These fields are only about running processes.
        return {**fields, **dict.fromkeys(OF_THE_ATTEMPT.values())}
    return {**fields, **_of_hosts(observed)}


def are_processes_gone(status: Status, observed: Observed, verdict: Verdict) -> bool:
    """Whether the processes that status describes are gone, and others continue.

    They are once `status` counts their restart, and when the job is suspended without pods, or resumed.
    """
    new, jobset = recorded_between(observed.status, status), observed.jobset
    was_restarted = new.total() > new[Cause.SUSPENSION]
    is_at_rest = jobset is not None and jobset.suspended and not observed.pods_left
    is_resumed = verdict.action.step is Step.RESUME
    return verdict.condition_update.phase not in TERMINAL and (was_restarted or is_at_rest or is_resumed)


def at_next_attempt(status: Status) -> Fields:
    """The figures before the next attempt reports: it starts at the last checkpoint."""
    # Finished units stay finished; and a program that reports no steps does not go back to one.
    goes_back = status.progress.units is None and status.step is not None
    step = status.last_checkpoint_step if goes_back else status.step
    return {"step": step, **dict.fromkeys(FIGURES), "progress.step_time": None}


def _known(status: Status, observed: Observed, verdict: Verdict) -> Fields:
    progress = observed.progress
    if progress is None:
        return {}
    known, is_over = status.last_checkpoint_step or 0, _has_finished(observed)
    if progress.is_final and progress.committed_step is not None and progress.committed_step < known:
        # A report of an earlier pod. If process 0 has finished, all of it counts except the older checkpoint.
        if not is_over:
            return {}
        progress = replace(progress, committed_step=None, committed_at=None)
    fields = _reported(replace(progress, step=reported_step(status, progress)))
    phase = verdict.condition_update.phase
    if not progress.is_final or is_over or phase in (*RUNNING_PHASES, *TERMINAL):
        return fields
    # Another process will continue from the last save of this one, not from its last step.
    step = progress.committed_step if progress.units is None else fields.get("step")
    left = {key: value for key, value in fields.items() if key not in ("step", *FIGURES)}
    return left if step is None else {**left, "step": step}


def _has_finished(observed: Observed) -> bool:
    """Whether process 0 has made all its steps: it is not started again when others of its attempt are."""
    return any(host.succeeded for host in observed.hosts if (host.slice_index, host.host_index) == (0, 0))


def _of_hosts(observed: Observed) -> Fields:
    """The report's fields about hosts; an empty string clears the previous value."""
    said = {name: getattr(observed.progress, name, None) for name in OF_THE_ATTEMPT}
    if said["in_place_restarts"]:
        said["in_place_restarts"] = min(said["in_place_restarts"], in_place.limit(observed))
    return {OF_THE_ATTEMPT[name]: words or None for name, words in said.items() if words is not None}


def _units(counts: UnitCounts) -> Units:
    claimed = None if counts.claimed is None else min(counts.claimed, counts.total - counts.done)
    fields: Fields = {
        "total": counts.total,
        "done": counts.done,
        "claimed": claimed,
        "left": None if claimed is None else counts.total - counts.done - claimed,
        "rows_per_second": None if counts.rows_per_second is None else round(counts.rows_per_second, 1),
        "failures": dict(counts.failures) or None,
    }
    return Units(**{key: value for key, value in fields.items() if value is not None})


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _reported(progress: Progress) -> Fields:
    fields = {
        "step": progress.step,
        "steps": progress.steps,
        "progress.loss": _rounded(progress.loss, LOSS_DIGITS),
        "progress.tokens_per_second": None if progress.tokens_per_second is None else round(progress.tokens_per_second),
        "last_checkpoint_step": progress.committed_step,
        "last_checkpoint_time": progress.committed_at,
        "progress.data_wait_fraction": _rounded(progress.data_wait_fraction, 2),
        "progress.goodput": dict(progress.goodput) or None,
        "progress.units": None if progress.units is None else _units(progress.units),
    }
    # Fields that a report lacks (of a process that has just restarted) keep their known values.
    return {key: value for key, value in fields.items() if value is not None}
