"""The status after a verdict. Fields that this version does not know (of a newer operator) are kept."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide import in_place
from tpujob_operator.decide.causes import attempt_cause, restart_accounting
from tpujob_operator.decide.causes.evidence import disruption_to_record, missing_to_record
from tpujob_operator.decide.causes.first_failure import asked_again, first_failure
from tpujob_operator.decide.checks import slice_count
from tpujob_operator.decide.record import progress
from tpujob_operator.decide.record.progress import Fields
from tpujob_operator.decide.record.status_conditions import conditions_after
from tpujob_operator.decide.verdict import Step, Verdict
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages.conditions import Reason
from tpujob_resource.models.phases import RUNNING_PHASES, TERMINAL, Phase
from tpujob_resource.models.restart_causes import RESTARTS, Cause
from tpujob_resource.models.status import GROUPS, Status

WARNING_LENGTH = 1024
"""Longest text in `Status.warnings`."""


def written(observed: Observed, verdict: Verdict, settings: Settings) -> Status:
    """The whole status to record; equal to the recorded one if nothing has changed."""
    status = observed.status.updated(_looked_at(observed, verdict))
    if verdict.condition_update.reason is Reason.ENDED:
        return status
    is_creating = verdict.action.step is Step.CREATE and verdict.condition_update.reason is Reason.CREATING
    if observed.status.phase is None and is_creating:
        return observed.status  # a moment later its result is recorded and reported
    if verdict.status_update.new_incarnation:
        return _renewed(status, observed, verdict)
    for part in PARTS:
        status = status.updated(part(status, observed, verdict))
    changed = set(_changed(difference(observed.status, status)))
    if changed <= progress.ALWAYS_MOVING or (changed <= progress.PROGRESS and not progress.is_due(observed, settings)):
        return observed.status
    return status


def difference(recorded: Status, wanted: Status) -> dict[str, Any]:
    """The merge patch from the recorded status to the wanted one; empty if they are equal.

    Recorded fields that could not be read stay as they are stored until they are replaced.
    """
    return _merge_patch(recorded.as_stored(), wanted.as_stored())


def _changed(patch: Mapping[str, Any]) -> Iterator[str]:
    """The paths of the fields that a patch changes, as the API server names them."""
    for name, value in patch.items():
        if name in GROUPS and isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch by RFC 7396: an object is merged into the existing one, so missing keys must be removed by name."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if old != value:
            patch[key] = _merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


OF_THE_JOB = (
    "observed_generation",
    "internal.retry",
    "hosts",
    "steps",
    "last_checkpoint_step",
    "last_checkpoint_time",
    "progress.goodput",
)
"""Fields that a new incarnation keeps: the state of the checkpoint directory, and what the next reconcile needs."""


ALSO_OVER_A_REST = ("start_time", "restarts.charged", "internal.crashed_at_step", "node_failures")
"""Fields that one with the same spec also keeps: the deadline and the budget of crashes continue."""

ALSO_OVER_A_RESTART = (
    "restarts.total",
    "restarts.in_place",
    "restarts.free",
    *(cause.status_field for cause in RESTARTS),
    "slices.current",
    "slices.changed_time",
    "slices.resizes",
    "slices.next_growth_time",
    "internal.restarts_without_progress",
    "internal.unexplained_without_progress",
    "internal.restarted_at_step",
    "internal.restart_time",
    "internal.resized_at_step",
    "internal.growths_without_progress",
)
"""Fields that one also keeps if the same run continues: it counts among the restarts in a row."""


def _looked_at(observed: Observed, verdict: Verdict) -> Fields:
    """Fields that every reconcile records, also of a job that has ended."""
    fields: Fields = {"observed_generation": observed.generation}
    if observed.spec.retry and verdict.condition_update.reason is not Reason.ENDED:
        fields["internal.retry"] = observed.spec.retry
    return fields


def _renewed(status: Status, observed: Observed, verdict: Verdict) -> Status:
    is_new_run = verdict.condition_update.reason in (Reason.EDITED, Reason.RETRIED)
    kept = OF_THE_JOB if is_new_run else (*OF_THE_JOB, *ALSO_OVER_A_REST)
    fields: Fields = {name: status.get(name) for name in kept}
    nodes = verdict.status_update.node_failures
    if nodes is not None:
        status = status.updated(restart_accounting.account_of_lost_pods(observed))
        fields |= {name: status.get(name) for name in ALSO_OVER_A_RESTART}
        fields |= restart_accounting.sums(status)
        fields |= {"node_failures": list(nodes), "internal.earlier_restarts": restart_accounting.of_jobsets(status)}
    if verdict.status_update.slices is not None:
        fields |= slice_count.after_resize(observed, verdict.status_update.slices)
    # Pods that are asked to stop save their current step.
    fields["step"] = (
        status.step if verdict.condition_update.phase is Phase.STOPPING else progress.at_next_attempt(status)["step"]
    )
    said = {
        "phase": verdict.condition_update.phase,
        "phase_time": observed.now,
        "message": verdict.condition_update.message,
    }
    return Status().updated({**fields, **said, "incarnation": status.current_incarnation + 1})


def _statement(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    condition_update, before = verdict.condition_update, observed.status
    said: Fields = {
        "phase": condition_update.phase,
        "message": condition_update.message,
        "conditions": conditions_after(observed, verdict),
    }
    return said if condition_update.phase == before.phase else {**said, "phase_time": observed.now}


def _jobset(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    fields: Fields = {}
    if verdict.status_update.jobset_uid:
        jobset = observed.jobset
        assert jobset is not None  # it is the one whose uid is recorded
        fields |= {"job_set": jobset.name, "internal.job_set_uid": jobset.uid, "incarnation": jobset.incarnation}
        if jobset.spec_hash is not None:
            fields["internal.spec_hash"] = jobset.spec_hash
    if verdict.status_update.jobset_uid:
        fields["warnings"] = [warning[:WARNING_LENGTH] for warning in verdict.status_update.warnings] or None
    if verdict.status_update.jobset_uid or verdict.action.step is Step.CREATE:
        fields["accelerator_note"] = verdict.status_update.accelerator_note
        fields["code_sha256"] = verdict.status_update.code_sha256
        fields["code_commit"] = verdict.status_update.code_commit
    return fields


def _hosts(status: Status, observed: Observed, verdict: Verdict) -> Fields:
    hosts = verdict.status_update.hosts if observed.jobset is None else observed.jobset.hosts
    hosts = status.hosts if hosts is None else hosts
    ready = verdict.status_update.hosts_ready
    ready = status.hosts_ready if ready is None else ready
    jobset = observed.jobset
    is_recorded = jobset is not None and jobset.uid == status.internal.job_set_uid
    return {
        "hosts": hosts,
        "hosts_ready": ready,
        **(restart_accounting.totals(status, jobset) if jobset is not None and is_recorded else {}),
        # One column for kubectl get.
        **({} if hosts is None else {"ready": f"{ready or 0}/{hosts}"}),
    }


def _times(status: Status, observed: Observed, verdict: Verdict) -> Fields:
    fields: Fields = {"restarts.next_time": verdict.status_update.next_restart}
    if verdict.condition_update.phase is Phase.RUNNING:
        before = observed.status
        fields["start_time"] = status.start_time or observed.now
        was_running = before.phase in RUNNING_PHASES
        have_come_up = not was_running or progress.are_processes_gone(status, observed, verdict)
        if have_come_up or status.step != before.step:
            fields["progress.step_time"] = observed.now
    if verdict.condition_update.phase in TERMINAL:
        at = observed.jobset.outcome_at if observed.jobset is not None else None
        fields["completion_time"] = at or observed.now
    return fields


def _failure(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    phase, jobset = verdict.condition_update.phase, observed.jobset
    found = None if phase is Phase.SUCCEEDED else first_failure(observed)
    if found is not None and jobset is not None and phase in (Phase.SUSPENDED, Phase.QUEUED):
        # A suspension does not end an attempt: when it goes on, an end from before is no failure of it.
        found = None if (found.attempt or 0) >= jobset.restarts else found
    return {"failure": found}


def _asked_again(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    found = None if verdict.condition_update.phase is Phase.SUCCEEDED else asked_again(observed)
    if found is not None and attempt_cause.of_attempt(observed, found.attempt or 0).cause is Cause.DISRUPTION:
        found = None
    return {"internal.asked_again": found}


def _disruption(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    found = None if verdict.condition_update.phase is Phase.SUCCEEDED else disruption_to_record(observed)
    if found is not None and attempt_cause.of_attempt(observed, found.attempt).cause is not Cause.DISRUPTION:
        found = None
    return {"internal.disruption": found}


def _machines(_: Status, observed: Observed, verdict: Verdict) -> Fields:
    if verdict.condition_update.phase in TERMINAL:
        return {"internal.unschedulable": None}
    return {"internal.unschedulable": missing_to_record(observed)}


def _last_step(status: Status, _: Observed, verdict: Verdict) -> Fields:
    """Fields of a succeeded job: exit code 0 of all processes means all steps, though the last report is older."""
    if verdict.condition_update.phase is not Phase.SUCCEEDED:
        return {}
    units = status.progress.units
    finished = None if units is None else units.model_copy(update={"done": units.total, "claimed": 0, "left": 0})
    fields: Fields = {"step": status.steps, "progress.units": finished}
    return {key: value for key, value in fields.items() if value is not None}


PARTS: tuple[Callable[[Status, Observed, Verdict], Fields], ...] = (
    _statement,
    _jobset,
    lambda _, observed, __: restart_accounting.account(observed),
    lambda status, observed, _: in_place.fields_after(status, observed),
    _hosts,
    lambda _, observed, verdict: slice_count.size(observed, verdict.condition_update.phase),
    progress.after,
    _times,
    _failure,
    _asked_again,
    _disruption,
    _machines,
    _last_step,
)
"""The parts of a status, in order; each gets the status with the parts before it."""
