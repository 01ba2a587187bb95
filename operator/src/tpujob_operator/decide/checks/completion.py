"""Verdicts on the ends of a job whose JobSet is recorded; `chain.CHAIN` puts them in order.

Each function returns the verdict on an observation; None: it does not apply.
"""

from datetime import datetime, timedelta

from tpujob_contract.exit_codes import describe
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide import in_place
from tpujob_operator.decide.causes import attempt_cause, restart_accounting
from tpujob_operator.decide.causes.first_failure import first_failure
from tpujob_operator.decide.checks.running import stopping
from tpujob_operator.decide.verdict import BACKSTOP_SECONDS, Action, Record, Statement, Step, Verdict
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages import remedies
from tpujob_resource.messages.conditions import Reason, sentence
from tpujob_resource.models.phases import TERMINAL, Phase
from tpujob_resource.models.status import Failure
from tpujob_resource.models.times import format_time

IN_PLACE = "Beside these, {} attempts ended in the same pods; status.restarts.inPlaceAttempts has the last ones."


def already_terminal(observed: Observed, _: Settings) -> Verdict | None:
    """A job that has ended keeps its phase, whatever happens to its JobSet or spec; its ttl is counted here.

    JobSet could count it too, but might then delete a JobSet before its end is recorded.
    """
    phase = observed.status.phase
    if phase is None or phase not in TERMINAL:
        return None
    step, again = _clean_up(observed)
    condition_update = Statement(phase, Reason.ENDED, observed.status.message or "", is_valid=None)
    return Verdict(condition_update=condition_update, action=Action(step), requeue_after_seconds=again)


def succeeded(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet completed: every host exited with 0."""
    jobset = observed.jobset
    if jobset is None or jobset.outcome != "Completed":
        return None
    message = sentence(Reason.FINISHED, hosts=jobset.hosts)
    condition_update = Statement(Phase.SUCCEEDED, Reason.FINISHED, message, is_valid=None)
    return Verdict(condition_update=condition_update, status_update=Record(hosts_ready=jobset.hosts))


def failed(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet failed for good; the first failure is the reason, if one was observed."""
    jobset = observed.jobset
    if jobset is None or jobset.outcome != "Failed":
        return None
    failure = first_failure(observed)
    if failure is None:
        detail = f"{jobset.outcome_reason}: {jobset.outcome_message}"
        message, reason = sentence(Reason.JOBSET_FAILED, detail=detail), Reason.JOBSET_FAILED
    else:
        reason = Reason.HOST_FAILED
        message = _who_failed(failure, remedies.after_exit(failure.exit_code))
    return _failed(reason, message)


def fatal_exit_code(observed: Observed, _: Settings) -> Verdict | None:
    """A host ended with a code after which no restart would help.

    JobSet's policy applies to the Job that it sees fail first, so it may have restarted despite the code; if it has
    not, it would give the slices their grace periods one after the other.
    """
    jobset = observed.jobset
    if jobset is None or jobset.suspended or attempt_cause.fatal_end(observed) is None:
        return None
    failure = first_failure(observed)
    assert failure is not None  # the fatal end is one
    message = _who_failed(failure, remedies.after_exit(failure.exit_code))
    return _failed(Reason.HOST_FAILED, message, _end_jobset(observed))


def restart_limit_exceeded(observed: Observed, _: Settings) -> Verdict | None:
    """The job crashed more often than `restarts.crashes` allows, without a committed step in between."""
    count, limit = restart_accounting.crashes(observed), observed.spec.restarts.crashes
    if count <= limit:
        return None
    failure = first_failure(observed)
    cause = "No host's own words are left." if failure is None else _who_failed(failure)
    reason = Reason.CRASHED_TOO_OFTEN
    what_to_do = remedies.after_exit(None if failure is None else failure.exit_code)
    if total := in_place.total(observed):
        cause = f"{cause} {IN_PLACE.format(total)}"
    message = sentence(reason, crashes=count, limit=limit, cause=cause, advice=what_to_do)
    return _failed(reason, message, _end_jobset(observed))


def unexplained_limit_exceeded(observed: Observed, _: Settings) -> Verdict | None:
    """The job was restarted too often without progress, for unknown causes."""
    count = restart_accounting.unexplained_in_a_row(observed)
    if count <= restart_accounting.MOST_UNEXPLAINED:
        return None
    reason = Reason.UNEXPLAINED_TOO_OFTEN
    message = sentence(reason, restarts=count, limit=restart_accounting.MOST_UNEXPLAINED)
    return _failed(reason, message, _end_jobset(observed))


def deadline_exceeded(observed: Observed, settings: Settings) -> Verdict | None:
    """`activeDeadlineSeconds` is over: the pods get their grace period to save, then the job fails."""
    due = deadline(observed)
    if due is None or observed.now < due:
        return None
    assert observed.jobset is not None  # an earlier check of the chain handles None
    reason = Reason.DEADLINE_EXCEEDED
    limit = observed.spec.active_deadline_seconds
    message = sentence(reason, limit=limit, since=format_time(due))
    if not observed.spec.queue:
        if not observed.jobset.suspended:
            return stopping(observed, settings, f"spec.activeDeadlineSeconds ({limit} s) is over", step=Step.SUSPEND)
        if observed.pods_left:
            return stopping(observed, settings, f"spec.activeDeadlineSeconds ({limit} s) is over")
    return _failed(reason, message, None if observed.jobset.suspended else _end_jobset(observed))


def deadline(observed: Observed) -> datetime | None:
    """When the job is ended, counted from its first start; None: it has no limit, or has not started."""
    seconds, started = observed.spec.active_deadline_seconds, observed.status.start_time
    return None if seconds is None or started is None else started + timedelta(seconds=seconds)


def _clean_up(observed: Observed) -> tuple[Step | None, float | None]:
    """The step that stops or deletes the JobSet of an ended job, and the seconds until the next reconcile."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid != observed.uid or jobset.being_deleted:
        return None, None
    if jobset.uid != observed.status.internal.job_set_uid:
        return Step.DELETE, None  # made by a late create; it never ran
    if jobset.outcome is None and not jobset.suspended:
        return _end_jobset(observed), BACKSTOP_SECONDS  # the operator crashed between the decision and this step
    ttl, ended_at = observed.spec.ttl_seconds_after_finished, observed.status.completion_time
    if ttl is None or ended_at is None:
        return None, None
    left = ttl - (observed.now - ended_at).total_seconds()
    return (Step.DELETE, None) if left <= 0 else (None, left)


def _end_jobset(observed: Observed) -> Step:
    """The step that stops an unfinished JobSet. Kueue would resume a suspended one that it has admitted."""
    return Step.DELETE if observed.spec.queue else Step.SUSPEND


def _failed(reason: Reason, message: str, step: Step | None = None) -> Verdict:
    condition_update = Statement(Phase.FAILED, reason, message, is_valid=None)
    requeue_after_seconds = None if step is None else BACKSTOP_SECONDS
    return Verdict(
        condition_update=condition_update,
        action=Action(step),
        status_update=Record(hosts_ready=0),
        requeue_after_seconds=requeue_after_seconds,
    )


def _who_failed(failure: Failure, what_to_do: str = "") -> str:
    last_lines = failure.message or ""
    return sentence(
        Reason.HOST_FAILED,
        host=failure.host,
        pod=failure.pod if failure.node is None else f"{failure.pod} on node {failure.node}",
        meaning="not known" if failure.exit_code is None else describe(failure.exit_code),
        advice=f"{what_to_do} Its last lines: " if what_to_do and last_lines else what_to_do,
        last_lines=last_lines,
    )
