"""The verdicts on one job, each a small function of what was seen: a verdict, or None for "not for me to say".

`decide.CHAIN` puts them in order and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tpujob_contract.exit_codes import describe
from tpujob_operator.conditions import TERMINAL, Reason, sentence
from tpujob_operator.errors import InvalidJob
from tpujob_operator.failures import first_failure
from tpujob_operator.jobset import materialize
from tpujob_operator.observed import Observed, hosts_of, parse_time
from tpujob_operator.resource import TpuTrainingJob, load_job
from tpujob_operator.resource_status import Phase
from tpujob_operator.settings import Settings

SOON = 2.0
"""Seconds until another look at something whose end no watch announces."""
PATIENCE = 15.0
"""The same where a watch should announce it, and only hindrances (events, not watched) have to be looked for."""

type Object = dict[str, Any]


class Step(Enum):
    """The one thing to do to the JobSet, after the status is written."""

    CREATE = auto()
    RESUME = auto()
    SUSPEND = auto()
    DELETE = auto()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a job is found to be in, and what follows."""

    phase: Phase
    reason: Reason
    message: str
    valid: bool | None = True
    """Of the spec; None when it was not looked at."""
    step: Step | None = None
    manifest: Object | None = None
    """The JobSet to create."""
    record: bool = False
    """Whether to write the JobSet's uid into status: the commit of its creation."""
    hosts: int | None = None
    hosts_ready: int | None = None
    blocked: tuple[Reason, str] | None = None
    again_seconds: float | None = None


type Check = Callable[[Observed, Settings], Verdict | None]


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


def impossible(observed: Observed, _: Settings) -> Verdict | None:
    """A spec that cannot become a JobSet. One that already did is not judged again: it runs as it was made."""
    if observed.status.get("jobSetUid"):
        return None
    try:
        _job(observed)
    except InvalidJob as error:
        message = sentence(Reason.REJECTED, problems="\n".join(error.problems))
        return Verdict(phase=Phase.INVALID, reason=Reason.REJECTED, message=message, valid=False)
    return None


def somebody_elses(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet's name is taken by one that was not made for this resource."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid == observed.uid or observed.status.get("jobSetUid"):
        return None
    # The garbage collector deletes what belonged to a deleted job of this name; a JobSet without an owner is a
    # person's.
    reason = Reason.LEFTOVER if jobset.owner_uid or jobset.being_deleted else Reason.NAME_TAKEN
    message = sentence(reason, name=jobset.name)
    return Verdict(phase=Phase.QUEUED, reason=reason, message=message, again_seconds=SOON)


def stray(observed: Observed, _: Settings) -> Verdict | None:
    """A JobSet of ours that status does not know, while it knows another: made by a late create, and it never ran."""
    recorded = observed.status.get("jobSetUid")
    if not recorded or observed.jobset is None or observed.jobset.uid == recorded:
        return None
    message = sentence(Reason.JOBSET_DELETED, name=observed.status.get("jobSet"))
    step = Step.DELETE if observed.jobset.owner_uid == observed.uid and not observed.jobset.being_deleted else None
    return Verdict(phase=Phase.FAILED, reason=Reason.JOBSET_DELETED, message=message, valid=None, step=step)


def vanished(observed: Observed, _: Settings) -> Verdict | None:
    """The recorded JobSet is gone or going, and had not finished as far as anybody saw."""
    if not observed.status.get("jobSetUid"):
        return None
    jobset = observed.jobset
    if jobset is not None and not (jobset.being_deleted and jobset.outcome is None):
        return None
    message = sentence(Reason.JOBSET_DELETED, name=observed.status.get("jobSet"))
    return Verdict(phase=Phase.FAILED, reason=Reason.JOBSET_DELETED, message=message, valid=None)


def not_created(observed: Observed, settings: Settings) -> Verdict | None:
    """Nothing is there and nothing was ever recorded: create the JobSet, suspended."""
    if observed.jobset is not None:
        return None
    incarnation = observed.status.get("incarnation") or 1
    manifest = materialize(_job(observed), settings, incarnation=incarnation)
    # Inert until recorded, and there until its end is: see `decide` and `over`.
    spec = {key: value for key, value in manifest["spec"].items() if key != "ttlSecondsAfterFinished"}
    manifest = {**manifest, "spec": {**spec, "suspend": True}}
    reason, message, blocked = Reason.CREATING, sentence(Reason.CREATING), None
    if observed.jobset_refusal:
        # Tried again all the same: a quota may have grown, JobSet may have been installed.
        reason, message = Reason.JOBSET_REFUSED, sentence(Reason.JOBSET_REFUSED, detail=observed.jobset_refusal)
        blocked = (reason, message)
    return Verdict(
        phase=Phase.QUEUED,
        reason=reason,
        message=message,
        blocked=blocked,
        step=Step.CREATE,
        manifest=manifest,
        hosts=hosts_of(manifest),
        again_seconds=0,
    )


def not_recorded(observed: Observed, _: Settings) -> Verdict | None:
    """Our JobSet exists and status does not say so yet: record it. Only then may it run."""
    if observed.status.get("jobSetUid") or observed.jobset is None:
        return None
    if observed.jobset.being_deleted:
        return Verdict(
            phase=Phase.QUEUED, reason=Reason.CREATING, message=sentence(Reason.CREATING), again_seconds=SOON
        )
    return Verdict(
        phase=Phase.QUEUED, reason=Reason.CREATING, message=sentence(Reason.CREATING), record=True, again_seconds=0
    )


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
        message = sentence(
            reason,
            host=failure["host"],
            pod=failure["pod"],
            meaning=describe(failure["exitCode"]),
            last_lines=failure["message"],
        )
    return Verdict(phase=Phase.FAILED, reason=reason, message=message, valid=None, hosts_ready=0)


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


def _job(observed: Observed) -> TpuTrainingJob:
    # Without the status: what another version of the operator wrote there says nothing about the spec.
    return load_job({key: value for key, value in observed.manifest.items() if key != "status"})


def _clean_up(observed: Observed) -> tuple[Step | None, float | None]:
    """Whether the JobSet of a job that has ended is to go, and when to ask again."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid != observed.uid or jobset.being_deleted:
        return None, None
    if jobset.uid != observed.status.get("jobSetUid"):
        return Step.DELETE, None  # made by a late create; it never ran
    ttl, ended_at = observed.spec.get("ttlSecondsAfterFinished"), parse_time(observed.status.get("completionTime"))
    if ttl is None or ended_at is None:
        return None, None
    left = ttl - (observed.now - ended_at).total_seconds()
    return (Step.DELETE, None) if left <= 0 else (None, left)


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
