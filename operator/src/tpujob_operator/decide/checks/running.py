"""Verdicts on a job whose JobSet is recorded and has not ended; `chain.CHAIN` puts them in order.

Each function returns the verdict on an observation; None: it does not apply.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from tpujob_contract.exit_codes import REPLACED
from tpujob_contract.reports.termination_message import program_code
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes import attempt_cause, restart_accounting
from tpujob_operator.decide.checks import capacity, resize, stall
from tpujob_operator.decide.checks.queue import is_suspended_without_jobset, leaving_queue, waiting, why_taken_back
from tpujob_operator.decide.verdict import BACKSTOP_SECONDS, POLL_SECONDS, Action, Record, Statement, Step, Verdict
from tpujob_operator.observe.state import Host, JobSetState, Observed
from tpujob_resource.jobset.environment import grace_seconds
from tpujob_resource.messages import remedies
from tpujob_resource.messages.conditions import Reason, Type, condition, ended, sentence
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.times import format_time

EXPLANATION_SECONDS = 5.0
"""Wait after an end without a known cause, before status reports it as unexplained."""
LONGEST_STOP_SECONDS = 30.0
"""Time after its grace period within which a pod is gone, unless its node is lost."""


def namespace_deleted(observed: Observed, settings: Settings) -> Verdict | None:
    """The namespace is being deleted, and waits for pods that Jobs keep: they are deleted with the JobSet."""
    if not observed.is_namespace_deleted:
        return None
    assert observed.jobset is not None  # an earlier check of the chain handles None
    return stopping(
        observed,
        settings,
        "the namespace is being deleted",
        step=None if observed.jobset.being_deleted else Step.DELETE,
    )


def suspended(observed: Observed, settings: Settings) -> Verdict | None:
    """The JobSet is suspended, or should be. With a queue, Kueue suspends and resumes it."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    if is_suspended_without_jobset(observed):
        return leaving_queue(observed, settings, renew=True)
    queue = observed.spec.queue
    if queue:
        if not observed.jobset.suspended:
            return None
        if observed.pods_left:
            why = why_taken_back(observed)
            return _stopping(
                Reason.TAKEN_BACK, sentence(Reason.TAKEN_BACK, queue=queue, why=why, **_leaving(observed, settings))
            )
        return waiting(observed)
    if observed.spec.suspend:
        if not observed.jobset.suspended:
            return stopping(observed, settings, "spec.suspend is set", step=Step.SUSPEND)
        if observed.pods_left:
            return stopping(observed, settings, "spec.suspend is set")
        message = sentence(Reason.SUSPENDED)
        return Verdict(
            condition_update=Statement(Phase.SUSPENDED, Reason.SUSPENDED, message), status_update=Record(hosts_ready=0)
        )
    if not observed.jobset.suspended:
        return None
    if _is_to_stop_first(observed, settings):
        return stopping(observed, settings, "the job resumes when its pods have ended")
    return _resuming(observed, observed.jobset)


def _is_to_stop_first(observed: Observed, settings: Settings) -> bool:
    """Whether pods are still stopping because of an earlier `spec.suspend`: see `_end_of_pause`."""
    status = observed.status
    if status.phase is not Phase.STOPPING or status.phase_time is None or not observed.pods_left:
        return False
    return observed.now < status.phase_time + _longest_stop(observed, settings)


def _resuming(observed: Observed, jobset: JobSetState) -> Verdict:
    """The verdict that resumes the JobSet; it reports why the last attempt to change it was refused."""
    reason, message = Reason.HOSTS_STARTING, sentence(Reason.HOSTS_STARTING, ready=0, hosts=jobset.hosts)
    if observed.jobset_refusal:
        reason, message = Reason.JOBSET_REFUSED, sentence(Reason.JOBSET_REFUSED, detail=observed.jobset_refusal)
    blocked = (reason, message) if observed.jobset_refusal else None
    return Verdict(
        condition_update=Statement(Phase.STARTING, reason, message, blocked=blocked),
        action=Action(Step.RESUME),
        status_update=Record(hosts_ready=0),
        # Our own write triggers no reconcile, and no watch reports pods that cannot be created.
        requeue_after_seconds=POLL_SECONDS,
    )


def service_taken(observed: Observed, _: Settings) -> Verdict | None:
    """Hosts would look for each other through a foreign Service. Kueue resumes what it admits anyway."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    if observed.foreign_service is None or not observed.jobset.suspended or observed.spec.suspend:
        return None
    reason, message = _service_taken(observed.foreign_service)
    return Verdict(
        condition_update=Statement(Phase.QUEUED, reason, message, blocked=(reason, message)),
        status_update=Record(hosts_ready=0),
        requeue_after_seconds=POLL_SECONDS,
    )


def _service_taken(name: str) -> tuple[Reason, str]:
    return Reason.SERVICE_NAME_TAKEN, sentence(Reason.SERVICE_NAME_TAKEN, name=name)


def restart_paused(observed: Observed, settings: Settings) -> Verdict | None:
    """Restarts bring no progress: the next attempt is delayed. Not with a queue: Kueue would resume the JobSet."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    at = restart_accounting.next_restart(observed, settings.restart_pause_seconds)
    at = at or _end_of_pause(observed, settings)
    if at is None or observed.spec.queue or observed.spec.suspend:
        return None
    if not observed.jobset.suspended and _hosts_ready(observed) >= observed.jobset.hosts:
        return None  # the restart was not observed in time, and there may be progress
    message = sentence(
        Reason.RESTART_PAUSED,
        number=restart_accounting.restarts_in_a_row(observed),
        cause=_last_cause(observed, observed.jobset),
        at=format_time(at),
    )
    if observed.status.restarts.next_time == at.replace(microsecond=0):
        # The pods that stop because of the pause say nothing about its cause.
        message = observed.status.message or message
    left = (at - observed.now).total_seconds()
    return Verdict(
        condition_update=Statement(Phase.RESTARTING, Reason.RESTART_PAUSED, message),
        action=Action(None if observed.jobset.suspended else Step.SUSPEND),
        status_update=Record(hosts_ready=0, next_restart=at),
        requeue_after_seconds=left if left > 0 else POLL_SECONDS,
    )


def _end_of_pause(observed: Observed, settings: Settings) -> datetime | None:
    """The end of a pause that is over while pods that it has stopped still run; None: there are no such pods.

    The next start waits for them: they hold their machines, and their ends would look like those of its own pods. A pod
    on a lost node may never end, so the wait is limited.
    """
    at = observed.status.restarts.next_time
    if at is None or observed.jobset is None or not observed.jobset.suspended or not observed.pods_left:
        return None
    return at if observed.now < at + _longest_stop(observed, settings) else None


def _longest_stop(observed: Observed, settings: Settings) -> timedelta:
    return timedelta(seconds=grace_seconds(observed.spec, settings) + LONGEST_STOP_SECONDS)


def _last_cause(observed: Observed, jobset: JobSetState) -> str:
    if jobset.restarts == 0 and observed.status.node_failures:
        last = observed.status.node_failures[-1]
        return f"a crash on node {last.node}, before this incarnation."
    return attempt_cause.of_attempt(observed, jobset.restarts - 1).message


def stopping(observed: Observed, settings: Settings, why: str, *, step: Step | None = None) -> Verdict:
    """The verdict while pods are ending; what follows is reported when they are gone."""
    return _stopping(Reason.STOPPING, sentence(Reason.STOPPING, why=why, **_leaving(observed, settings)), step=step)


def waiting_for_capacity(observed: Observed, _: Settings) -> Verdict | None:
    """A host has no node. Other obstacles to a start are reported first: more machines would not help."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    obstacle = _start_obstacle(observed)
    told = ((host.pod, host.unschedulable) for host in _in_order(observed) if host.unschedulable is not None)
    without = next(told, None)
    if obstacle is not None or without is None:
        return None
    pod, scheduler_message = without
    wait = capacity.awaited(scheduler_message, observed.capacity_notices)
    why = sentence(wait.reason, pod=pod, detail=ended(wait.detail), accelerator=observed.spec.accelerator)
    message = f"{why} {_arrived(observed, observed.jobset)}"
    blocked = (wait.reason, message) if wait.needs_somebody else None
    return Verdict(
        condition_update=Statement(Phase.WAITING_FOR_CAPACITY, wait.reason, message, blocked=blocked),
        status_update=Record(hosts_ready=_hosts_ready(observed)),
        requeue_after_seconds=BACKSTOP_SECONDS,
    )


def _arrived(observed: Observed, jobset: JobSetState) -> str:
    """How many hosts have a machine, and since when the job waits for the others."""
    status = observed.status
    is_waiting = status.phase is Phase.WAITING_FOR_CAPACITY
    # A status without the time does not show it; the current time would make a new message at each reconcile.
    since = status.phase_time if is_waiting else observed.now
    waits = "" if since is None else f"; the others have been awaited since {format_time(since)}"
    count = sum(host.ip is not None or host.ready or host.succeeded for host in observed.hosts)
    return f"{count} of {jobset.hosts} hosts have arrived{waits}."


def restarting(observed: Observed, settings: Settings) -> Verdict | None:
    """An attempt has failed, and the next one is not complete."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    jobset = observed.jobset
    still_starting = starting(observed, settings)
    if still_starting is None:
        return None
    # Until JobSet counts it, the failed attempt is the current one.
    is_failing = any(end.attempt == jobset.restarts for end in observed.ended)
    if not is_failing and (jobset.restarts == 0 or _is_resuming(observed, jobset)):
        return None
    last = jobset.restarts if is_failing else jobset.restarts - 1
    finding = attempt_cause.of_attempt(observed, last)
    if finding.cause is Cause.UNEXPLAINED and (as_before := _until_explained(observed, last)) is not None:
        return as_before
    ready = {"ready": _hosts_ready(observed), "hosts": jobset.hosts}
    reason = Reason.POD_REPLACED if is_failing and _is_replacing(observed, last) else Reason.RESTARTING
    if reason is Reason.POD_REPLACED:
        replacing = {"cause": finding.message, "seconds": observed.spec.startup_seconds, **ready}
        left = _leaders_in_the_way(observed, jobset)
        reason = Reason.POD_NOT_REPLACED if left else reason
        message = sentence(reason, pods=" ".join(left), **replacing)
    else:
        cause = finding.cause.template.format(finding.message)
        message = sentence(reason, number=last + 1, cause=cause, **ready)
    condition_update = replace(still_starting.condition_update, phase=Phase.RESTARTING, reason=reason, message=message)
    return replace(still_starting, condition_update=condition_update)


def _is_replacing(observed: Observed, attempt: int) -> bool:
    """Whether the attempt lost pods that the Job controller replaces, while others are ready."""
    lost = [end for end in observed.ended if end.attempt == attempt and not end.is_disrupted]
    # A launcher that reports such a code as its program's ended with another one itself, and all others then end, too.
    is_own = any(program_code(end.message) == end.exit_code for end in lost)
    codes = {end.exit_code for end in lost}
    # As `failure_policy.replaces_pods`, but for the existing JobSet: the spec of a running job may be invalid by now.
    replaces_pods = observed.spec.in_place_restarts > 0 and observed.jobset is not None and observed.jobset.hosts > 1
    return replaces_pods and _hosts_ready(observed) > 0 and codes <= set(REPLACED) and not is_own


def _leaders_in_the_way(observed: Observed, jobset: JobSetState) -> list[str]:
    """Failed pods of host 0 because of which JobSet refuses a missing pod of their slice.

    Its webhook looks up the pod that the others of a slice follow, and up to JobSet 0.12 counts a failed one as a
    second one (kubernetes-sigs/jobset#1276).
    """
    if observed.creation_failure is None or capacity.NO_LEADER not in observed.creation_failure:
        return []
    there = Counter(host.slice_index for host in observed.hosts)
    has_leader = {host.slice_index for host in observed.hosts if host.host_index == 0 and host.ready}
    return [
        pod
        for slice_index, pods in sorted(observed.failed_leaders.items())
        if slice_index in has_leader and there[slice_index] < jobset.hosts_per_slice
        for pod in pods
    ]


def _until_explained(observed: Observed, attempt: int) -> Verdict | None:
    """The recorded verdict, if an attempt ended so recently that its cause may not be observed yet; else None.

    An Event is written once, for the first reason: a preempted pod must not be reported as one that stopped by itself
    because its peers were observed to stop before its own deletion was.
    """
    newest = max((end.finished_at for end in observed.ended if end.attempt == attempt), default=None)
    before = condition(observed.status, Type.RUNNING)
    if newest is None or abs(observed.now - newest) >= timedelta(seconds=EXPLANATION_SECONDS):
        return None
    reason = next((reason for reason in Reason if before is not None and before.reason == reason), None)
    if before is None or reason is None or observed.status.phase not in (Phase.STARTING, Phase.RUNNING):
        return None
    return Verdict(
        condition_update=Statement(observed.status.phase, reason, before.message),
        status_update=Record(hosts_ready=_hosts_ready(observed)),
        requeue_after_seconds=POLL_SECONDS,
    )


def _is_resuming(observed: Observed, jobset: JobSetState) -> bool:
    """Whether the job starts after a suspension: JobSet never resets its count of restarts, and this is none."""
    was_at_it = observed.status.phase in (Phase.RUNNING, Phase.STALLED, Phase.RESTARTING)
    return not was_at_it and jobset.restarts <= (observed.status.internal.booked_restarts or 0)


def starting(observed: Observed, _: Settings) -> Verdict | None:
    """Not every host is ready."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    ready, hosts = _hosts_ready(observed), observed.jobset.hosts
    # Workers come and go one by one; once all have been ready, those that are make progress.
    if ready >= hosts or (ready and observed.spec.workers and observed.status.start_time):
        return None
    message = sentence(Reason.HOSTS_STARTING, ready=ready, hosts=hosts)
    return Verdict(
        condition_update=Statement(Phase.STARTING, Reason.HOSTS_STARTING, message, blocked=_start_obstacle(observed)),
        status_update=Record(hosts_ready=ready),
        requeue_after_seconds=POLL_SECONDS if len(observed.hosts) < hosts else BACKSTOP_SECONDS,
    )


def stalled(observed: Observed, settings: Settings) -> Verdict | None:
    """All hosts are ready, and there is no progress."""
    reason = stall.found(observed, settings)
    if reason is None:
        return None
    verdict = running(observed, settings)
    return replace(
        verdict,
        condition_update=replace(verdict.condition_update, phase=Phase.STALLED, stalled=reason, message=reason[1]),
    )


def running(observed: Observed, settings: Settings) -> Verdict:
    """All hosts, or some of the workers, are ready; those that finished already count."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    ready, hosts = _hosts_ready(observed), observed.jobset.hosts
    reason = Reason.ALL_HOSTS_READY if ready >= hosts else Reason.HOSTS_STARTING
    message = sentence(reason, ready=ready, hosts=hosts)
    return Verdict(
        condition_update=Statement(Phase.RUNNING, reason, message, blocked=resize.refusal(observed, settings)),
        status_update=Record(hosts_ready=ready),
        requeue_after_seconds=_report_due_seconds(observed, settings),
    )


def _report_due_seconds(observed: Observed, settings: Settings) -> float:
    """When process 0 is polled again: soon until there is a first step, then as often as progress is written."""
    awaits_first_step = observed.spec.trainer and observed.status.step is None
    if awaits_first_step:
        return settings.report_interval_seconds
    return max(settings.report_interval_seconds, settings.progress_interval_seconds)


def _stopping(reason: Reason, message: str, *, step: Step | None = None) -> Verdict:
    return Verdict(
        condition_update=Statement(Phase.STOPPING, reason, message),
        action=Action(step),
        status_update=Record(hosts_ready=0),
        requeue_after_seconds=BACKSTOP_SECONDS,
    )


def _leaving(observed: Observed, settings: Settings) -> dict[str, int]:
    return {"pods": observed.pods_left, "grace": grace_seconds(observed.spec, settings)}


def _hosts_ready(observed: Observed) -> int:
    return sum(host.ready or host.succeeded for host in observed.hosts)


def _in_order(observed: Observed) -> list[Host]:
    """The hosts in a fixed order: a message quotes the first one that fits, so it does not flicker."""
    return sorted(observed.hosts, key=lambda host: (host.slice_index, host.host_index))


def _start_obstacle(observed: Observed) -> tuple[Reason, str] | None:
    """An obstacle to the start of pods that more machines would not remove; None: there is none."""
    if observed.foreign_service:
        return _service_taken(observed.foreign_service)
    if observed.jobset_warning and not observed.creation_failure:
        return Reason.JOBS_REFUSED, sentence(Reason.JOBS_REFUSED, detail=ended(observed.jobset_warning))
    if observed.creation_failure and capacity.NO_LEADER not in observed.creation_failure:
        return Reason.CREATION_REFUSED, sentence(Reason.CREATION_REFUSED, detail=ended(observed.creation_failure))
    for host in _in_order(observed):
        if host.waiting_reason:
            detail = ": ".join(part for part in (host.waiting_reason, host.waiting_message) if part)
            return Reason.CANNOT_START, sentence(
                Reason.CANNOT_START,
                host=f"slice {host.slice_index} host {host.host_index}",
                pod=host.pod,
                detail=ended(detail),
                advice=remedies.for_waiting(host.waiting_reason),
            )
    return None
