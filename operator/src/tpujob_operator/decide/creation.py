"""Verdicts on the way to the one JobSet of a job; `chain.CHAIN` puts them in order and says why.

Each is a small function of what was seen: a verdict, or None for "not for me to say".
"""

from __future__ import annotations

from tpujob_operator.api.conditions import TERMINAL, Reason, sentence
from tpujob_operator.api.load import TpuTrainingJob, load_job, without_status
from tpujob_operator.api.status import Phase
from tpujob_operator.decide.queue import is_to_rest_without_jobset, leaving_queue
from tpujob_operator.decide.verdict import POLL_SECONDS, Step, Verdict
from tpujob_operator.errors import InvalidJob
from tpujob_operator.jobset.build import materialize, spec_hash
from tpujob_operator.observe.from_objects import hosts_of
from tpujob_operator.observe.state import Observed
from tpujob_operator.settings import Settings


def edited(observed: Observed, _: Settings) -> Verdict | None:
    """Somebody changed the spec of a job that is at rest or has failed: the one explicit way to run it again.

    A new release may compute another hash of the same spec, and must not revive anything: hence the generation, too.
    """
    status = observed.status
    if status.get("phase") not in (Phase.SUSPENDED, Phase.FAILED):
        return None
    if observed.generation == status.get("observedGeneration") or status.get("specHash") is None:
        return None
    try:
        if spec_hash(_job(observed)) == status["specHash"]:
            return None
    except InvalidJob:
        # The next look, at what is a new incarnation by then, says what is wrong with it.
        pass
    message = sentence(Reason.EDITED, incarnation=(status.get("incarnation") or 1) + 1)
    return Verdict(
        phase=Phase.QUEUED,
        reason=Reason.EDITED,
        message=message,
        valid=None,
        renew=True,
        hosts_ready=0,
        again_seconds=0,
    )


def retried(observed: Observed, _: Settings) -> Verdict | None:
    """Somebody raised `spec.retry` of a job that has ended."""
    wanted = observed.spec.get("retry") or 0
    if observed.status.get("phase") not in TERMINAL or wanted <= (observed.status.get("retry") or 0):
        return None
    message = sentence(Reason.RETRIED, retry=wanted, incarnation=(observed.status.get("incarnation") or 1) + 1)
    return Verdict(
        phase=Phase.QUEUED,
        reason=Reason.RETRIED,
        message=message,
        valid=None,
        renew=True,
        hosts_ready=0,
        again_seconds=0,
    )


def invalid_spec(observed: Observed, settings: Settings) -> Verdict | None:
    """A spec that cannot become a JobSet. One that already did is not judged again: it runs as it was made."""
    if observed.status.get("jobSetUid"):
        return None
    try:
        load_job(without_status(observed.manifest), settings)
    except InvalidJob as error:
        message = sentence(Reason.REJECTED, problems="\n".join(error.problems))
        return Verdict(phase=Phase.INVALID, reason=Reason.REJECTED, message=message, valid=False)
    return None


def name_conflict(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet's name is taken by one that was not made for this resource."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid == observed.uid or observed.status.get("jobSetUid"):
        return None
    # The garbage collector deletes what belonged to a deleted job of this name; a JobSet without an owner is a
    # person's.
    reason = Reason.LEFTOVER if jobset.owner_uid or jobset.being_deleted else Reason.NAME_TAKEN
    message = sentence(reason, name=jobset.name)
    return Verdict(phase=Phase.QUEUED, reason=reason, message=message, again_seconds=POLL_SECONDS)


def earlier_incarnation(observed: Observed, _: Settings) -> Verdict | None:
    """Our JobSet of an earlier incarnation; it goes, with its pods, before the next one is made."""
    jobset = observed.jobset
    if jobset is None or observed.status.get("jobSetUid"):
        return None
    if jobset.incarnation == (observed.status.get("incarnation") or 1):
        return None
    step = None if jobset.being_deleted else Step.DELETE
    if is_to_rest_without_jobset(observed):
        return leaving_queue(observed, step=step)
    message = sentence(Reason.REMAKING, name=jobset.name)
    return Verdict(phase=Phase.QUEUED, reason=Reason.REMAKING, message=message, step=step, again_seconds=POLL_SECONDS)


def suspended_without_jobset(observed: Observed, _: Settings) -> Verdict | None:
    """A job for a queue that is to rest: it has no JobSet, which the queue would start whenever it has room."""
    if observed.status.get("jobSetUid") or not is_to_rest_without_jobset(observed):
        return None
    if observed.jobset is not None:
        return leaving_queue(observed, step=None if observed.jobset.being_deleted else Step.DELETE)
    message = sentence(Reason.SUSPENDED)
    return Verdict(phase=Phase.SUSPENDED, reason=Reason.SUSPENDED, message=message, hosts_ready=0)


def unrecorded_jobset(observed: Observed, _: Settings) -> Verdict | None:
    """A JobSet of ours that status does not know, while it knows another: made by a late create, and it never ran."""
    recorded = observed.status.get("jobSetUid")
    if not recorded or observed.jobset is None or observed.jobset.uid == recorded:
        return None
    message = sentence(Reason.JOBSET_DELETED, name=observed.status.get("jobSet"))
    step = Step.DELETE if observed.jobset.owner_uid == observed.uid and not observed.jobset.being_deleted else None
    return Verdict(phase=Phase.FAILED, reason=Reason.JOBSET_DELETED, message=message, valid=None, step=step)


def jobset_deleted(observed: Observed, _: Settings) -> Verdict | None:
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
    job = _job(observed)
    manifest = materialize(job, settings, incarnation=incarnation)
    # Inert until recorded, and there until its end is: see `decide` and `already_terminal`.
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
        accelerator_note=job.accelerator.note,
        hosts=hosts_of(manifest),
        again_seconds=0,
    )


def not_recorded(observed: Observed, _: Settings) -> Verdict | None:
    """Our JobSet exists and status does not say so yet: record it. Only then may it run."""
    if observed.status.get("jobSetUid") or observed.jobset is None:
        return None
    if observed.jobset.being_deleted:
        return Verdict(
            phase=Phase.QUEUED, reason=Reason.CREATING, message=sentence(Reason.CREATING), again_seconds=POLL_SECONDS
        )
    return Verdict(
        phase=Phase.QUEUED, reason=Reason.CREATING, message=sentence(Reason.CREATING), record=True, again_seconds=0
    )


def _job(observed: Observed) -> TpuTrainingJob:
    return load_job(without_status(observed.manifest))
