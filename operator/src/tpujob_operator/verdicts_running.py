"""Verdicts on a job whose JobSet is recorded, from its start to its end and after; `decide.CHAIN` puts them in order.

Each is a small function of what was seen: a verdict, or None for "not for me to say".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_contract.exit_codes import describe
from tpujob_operator import budget
from tpujob_operator.conditions import TERMINAL, Reason, sentence
from tpujob_operator.failures import first_failure
from tpujob_operator.observed import Observed, parse_time
from tpujob_operator.resource_status import Phase
from tpujob_operator.settings import Settings
from tpujob_operator.verdict import PATIENCE, SOON, Step, Verdict


def over(observed: Observed, _: Settings) -> Verdict | None:
    """A job that has ended stays as it is, whatever becomes of its JobSet or spec; its time to live is counted here.

    JobSet could count it too, but then a JobSet might go before its end was written down.
    """
    phase = observed.status.get("phase")
    if phase not in TERMINAL:
        return None
    step, again = _clean_up(observed)
    message = observed.status.get("message", "")
    return Verdict(phase=Phase(phase), reason=Reason.ENDED, message=message, valid=None, step=step, again_seconds=again)


def succeeded(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet completed: every host exited with 0."""
    jobset = observed.jobset
    if jobset is None or jobset.outcome != "Completed":
        return None
    message = sentence(Reason.FINISHED, hosts=jobset.hosts)
    return Verdict(phase=Phase.SUCCEEDED, reason=Reason.FINISHED, message=message, valid=None, hosts_ready=0)


def failed(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet failed for good; the first failure says why, if anybody saw it."""
    jobset = observed.jobset
    if jobset is None or jobset.outcome != "Failed":
        return None
    failure = first_failure(observed)
    if failure is None:
        detail = f"{jobset.outcome_reason}: {jobset.outcome_message}"
        message, reason = sentence(Reason.JOBSET_FAILED, detail=detail), Reason.JOBSET_FAILED
    else:
        reason = Reason.HOST_FAILED
        message = _who_failed(failure)
    return Verdict(phase=Phase.FAILED, reason=reason, message=message, valid=None, hosts_ready=0)


def spent(observed: Observed, _: Settings) -> Verdict | None:
    """It crashed once more than is put up with, and nothing was committed in between."""
    count, limit = budget.crashes(observed), budget.limit(observed.spec)
    if count <= limit:
        return None
    failure = first_failure(observed)
    cause = "No host's own words are left." if failure is None else _who_failed(failure)
    reason = Reason.CRASHED_TOO_OFTEN
    message = sentence(reason, crashes=count, limit=limit, cause=cause)
    step = _end_jobset(observed)
    return Verdict(phase=Phase.FAILED, reason=reason, message=message, valid=None, hosts_ready=0, step=step)


def suspended(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet is suspended, or should be. With a queue, Kueue owns this and nothing is done here."""
    assert observed.jobset is not None  # the chain has dealt with that
    queue, wanted = observed.spec.get("queue"), bool(observed.spec.get("suspend"))
    if queue:
        if not observed.jobset.suspended:
            return None
        message = sentence(Reason.IN_QUEUE, queue=queue)
        return Verdict(phase=Phase.QUEUED, reason=Reason.IN_QUEUE, message=message, hosts_ready=0)
    if wanted:
        step = None if observed.jobset.suspended else Step.SUSPEND
        message = sentence(Reason.SUSPENDED)
        return Verdict(phase=Phase.SUSPENDED, reason=Reason.SUSPENDED, message=message, step=step, hosts_ready=0)
    if observed.jobset.suspended:
        message = sentence(Reason.HOSTS_STARTING, ready=0, hosts=observed.jobset.hosts)
        return Verdict(
            phase=Phase.STARTING, reason=Reason.HOSTS_STARTING, message=message, step=Step.RESUME, hosts_ready=0
        )
    return None


def starting(observed: Observed, _: Settings) -> Verdict | None:
    """Not every host is ready."""
    assert observed.jobset is not None  # the chain has dealt with that
    ready, hosts = _hosts_ready(observed), observed.jobset.hosts
    if ready >= hosts:
        return None
    return Verdict(
        phase=Phase.STARTING,
        reason=Reason.HOSTS_STARTING,
        message=sentence(Reason.HOSTS_STARTING, ready=ready, hosts=hosts),
        hosts_ready=ready,
        blocked=_hindrance(observed),
        again_seconds=SOON if len(observed.hosts) < hosts else PATIENCE,
    )


def running(observed: Observed, settings: Settings) -> Verdict | None:
    """All hosts are ready; those that finished already count."""
    assert observed.jobset is not None  # the chain has dealt with that
    hosts = observed.jobset.hosts
    return Verdict(
        phase=Phase.RUNNING,
        reason=Reason.ALL_HOSTS_READY,
        message=sentence(Reason.ALL_HOSTS_READY, hosts=hosts),
        hosts_ready=_hosts_ready(observed),
        again_seconds=settings.report_interval_seconds,
    )


def _clean_up(observed: Observed) -> tuple[Step | None, float | None]:
    """Whether the JobSet of a job that has ended is to go, and when to ask again."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid != observed.uid or jobset.being_deleted:
        return None, None
    if jobset.uid != observed.status.get("jobSetUid"):
        return Step.DELETE, None  # made by a late create; it never ran
    if jobset.outcome is None and not jobset.suspended:
        return _end_jobset(observed), None  # it was to end when this was decided, and a crash came between
    ttl, ended_at = observed.spec.get("ttlSecondsAfterFinished"), parse_time(observed.status.get("completionTime"))
    if ttl is None or ended_at is None:
        return None, None
    left = ttl - (observed.now - ended_at).total_seconds()
    return (Step.DELETE, None) if left <= 0 else (None, left)


def _end_jobset(observed: Observed) -> Step:
    """How a JobSet that would go on is stopped. Kueue would resume a suspended one that it has admitted."""
    return Step.DELETE if observed.spec.get("queue") else Step.SUSPEND


def _who_failed(failure: Mapping[str, Any]) -> str:
    return sentence(
        Reason.HOST_FAILED,
        host=failure["host"],
        pod=failure["pod"],
        meaning=describe(failure["exitCode"]),
        last_lines=failure["message"],
    )


def _hosts_ready(observed: Observed) -> int:
    return sum(host.ready or host.succeeded for host in observed.hosts)


def _hindrance(observed: Observed) -> tuple[Reason, str] | None:
    """What keeps pods from starting; of several, that of the first host, so that the message does not flicker."""
    if observed.creation_failure:
        return Reason.CREATION_REFUSED, sentence(Reason.CREATION_REFUSED, detail=observed.creation_failure)
    for host in sorted(observed.hosts, key=lambda h: (h.slice_index, h.host_index)):
        if host.waiting_reason:
            detail = ": ".join(part for part in (host.waiting_reason, host.waiting_message) if part)
            return Reason.CANNOT_START, sentence(Reason.CANNOT_START, pod=host.pod, detail=detail)
        if host.unschedulable is not None:
            return Reason.UNSCHEDULABLE, sentence(Reason.UNSCHEDULABLE, pod=host.pod, detail=host.unschedulable)
    return None
