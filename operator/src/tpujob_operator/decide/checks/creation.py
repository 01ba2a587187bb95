"""Verdicts on the creation of a job's only JobSet; `chain.CHAIN` puts them in order and says why.

Each function returns the verdict on an observation; None: it does not apply.
"""

from dataclasses import replace

from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.node_failures import avoided
from tpujob_operator.decide.checks.queue import is_suspended_without_jobset, leaving_queue
from tpujob_operator.decide.verdict import POLL_SECONDS, Action, Record, Statement, Step, Verdict
from tpujob_operator.observe.from_objects import hosts_of
from tpujob_operator.observe.state import Observed
from tpujob_resource.jobset.access import build_secret
from tpujob_resource.jobset.build import build_jobset, spec_hash
from tpujob_resource.messages.conditions import Reason, sentence
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.phases import TERMINAL, Phase
from tpujob_resource.rules.limits import broken_limits
from tpujob_resource.rules.load import load_job, without_status
from tpujob_resource.rules.warnings import job_warnings
from tpujob_resource.topology.errors import InvalidJob

INSTALLED_SECONDS = 30.0
"""Until the next check whether JobSet is installed."""


def edited(observed: Observed, _: Settings) -> Verdict | None:
    """The spec of a suspended or failed job was edited: the explicit way to run it again.

    A new release may compute another hash of the same spec, and must not restart a job: so the generation counts, too.
    """
    status = observed.status
    if status.phase not in (Phase.SUSPENDED, Phase.FAILED):
        return None
    if observed.generation == status.observed_generation or status.internal.spec_hash is None:
        return None
    try:
        if spec_hash(observed.job) == status.internal.spec_hash:
            return None
    except InvalidJob:
        # The next reconcile, of the new incarnation, reports what is wrong with the spec.
        pass
    message = sentence(Reason.EDITED, incarnation=observed.status.current_incarnation + 1)
    return _restarted(Reason.EDITED, message)


def retried(observed: Observed, _: Settings) -> Verdict | None:
    """`spec.retry` of an ended job was raised."""
    wanted = observed.spec.retry
    if observed.status.phase not in TERMINAL or wanted <= (observed.status.internal.retry or 0):
        return None
    message = sentence(Reason.RETRIED, retry=wanted, incarnation=observed.status.current_incarnation + 1)
    return _restarted(Reason.RETRIED, message)


def _restarted(reason: Reason, message: str) -> Verdict:
    return Verdict(
        condition_update=Statement(Phase.QUEUED, reason, message, is_valid=None),
        status_update=Record(new_incarnation=True),
        requeue_after_seconds=0,
    )


def invalid_spec(observed: Observed, settings: Settings) -> Verdict | None:
    """A spec that cannot become a JobSet. One that already did is not checked again: it runs as it was made."""
    if observed.status.internal.job_set_uid:
        return None
    try:
        if not broken_limits(observed.job, settings):
            return None
    except InvalidJob:
        pass
    try:
        load_job(without_status(observed.manifest), settings)  # reports violations of rules and limits together
    except InvalidJob as error:
        message = sentence(Reason.REJECTED, problems="\n".join(error.problems))
        return Verdict(condition_update=Statement(Phase.INVALID, Reason.REJECTED, message, is_valid=False))
    return None


def name_conflict(observed: Observed, _: Settings) -> Verdict | None:
    """The JobSet's name is taken by one that was not made for this resource."""
    jobset = observed.jobset
    if jobset is None or jobset.owner_uid == observed.uid or observed.status.internal.job_set_uid:
        return None
    # The garbage collector deletes what belonged to a deleted job of this name; a JobSet without an owner was created
    # by a person.
    reason = Reason.LEFTOVER if jobset.owner_uid or jobset.being_deleted else Reason.NAME_TAKEN
    message = sentence(reason, name=jobset.name)
    return Verdict(condition_update=Statement(Phase.QUEUED, reason, message), requeue_after_seconds=POLL_SECONDS)


def earlier_incarnation(observed: Observed, settings: Settings) -> Verdict | None:
    """Our JobSet of an earlier incarnation; it is deleted, with its pods, before the next one is created."""
    jobset = observed.jobset
    if jobset is None or observed.status.internal.job_set_uid:
        return None
    if jobset.incarnation == observed.status.current_incarnation:
        return None
    step = None if jobset.being_deleted else Step.DELETE
    if is_suspended_without_jobset(observed):
        return leaving_queue(observed, settings, step=step)
    message = sentence(Reason.REMAKING, name=jobset.name)
    return Verdict(
        condition_update=Statement(Phase.QUEUED, Reason.REMAKING, message),
        action=Action(step),
        requeue_after_seconds=POLL_SECONDS,
    )


def suspended_without_jobset(observed: Observed, settings: Settings) -> Verdict | None:
    """A suspended job with a queue: it has no JobSet, because Kueue would start one whenever it has room."""
    if observed.status.internal.job_set_uid or not is_suspended_without_jobset(observed):
        return None
    if observed.jobset is not None:
        return leaving_queue(observed, settings, step=None if observed.jobset.being_deleted else Step.DELETE)
    message = sentence(Reason.SUSPENDED)
    return Verdict(
        condition_update=Statement(Phase.SUSPENDED, Reason.SUSPENDED, message), status_update=Record(hosts_ready=0)
    )


def unrecorded_jobset(observed: Observed, _: Settings) -> Verdict | None:
    """Another JobSet than the recorded one: if it is ours, a late create made it, and it never ran."""
    recorded = observed.status.internal.job_set_uid
    if not recorded or observed.jobset is None or observed.jobset.uid == recorded:
        return None
    step = Step.DELETE if observed.jobset.owner_uid == observed.uid and not observed.jobset.being_deleted else None
    return Verdict(condition_update=_deleted_by_somebody(observed), action=Action(step))


def jobset_deleted(observed: Observed, _: Settings) -> Verdict | None:
    """The recorded JobSet is gone or being deleted, and was not observed to finish."""
    if not observed.status.internal.job_set_uid:
        return None
    jobset = observed.jobset
    if jobset is not None and not (jobset.being_deleted and jobset.outcome is None):
        return None
    return Verdict(condition_update=_deleted_by_somebody(observed))


def _deleted_by_somebody(observed: Observed) -> Statement:
    message = sentence(Reason.JOBSET_DELETED, name=observed.status.job_set)
    return Statement(Phase.FAILED, Reason.JOBSET_DELETED, message, is_valid=None)


def not_created(observed: Observed, settings: Settings) -> Verdict | None:
    """There is no JobSet, and none is recorded: it is created, suspended."""
    if observed.jobset is not None:
        return None
    if not observed.serves_jobsets:
        return _without_jobsets()
    job = observed.job
    keeps_off = avoided(observed.status.node_failures)
    status = observed.status
    manifest = build_jobset(
        job, settings, incarnation=status.current_incarnation, avoided=keeps_off, slices=status.slices.current
    )
    # Suspended until it is recorded, and kept until its end is: see `chain` and `already_terminal`.
    spec = {key: value for key, value in manifest["spec"].items() if key != "ttlSecondsAfterFinished"}
    manifest = {**manifest, "spec": {**spec, "suspend": True}}
    reason, message, blocked = Reason.CREATING, sentence(Reason.CREATING), None
    if observed.jobset_refusal:
        # Tried again anyway: a quota may have grown, JobSet may have been installed.
        reason, message = Reason.JOBSET_REFUSED, sentence(Reason.JOBSET_REFUSED, detail=observed.jobset_refusal)
        blocked = (reason, message)
    return Verdict(
        condition_update=Statement(Phase.QUEUED, reason, message, blocked=blocked),
        action=Action(Step.CREATE, manifest, build_secret(job)),
        status_update=replace(_made_from(job), hosts=hosts_of(manifest)),
        requeue_after_seconds=0,
    )


def _without_jobsets() -> Verdict:
    reason = Reason.JOBSET_NOT_INSTALLED
    message = sentence(reason, version=kubernetes_names.JOBSET_API_VERSION)
    return Verdict(
        condition_update=Statement(Phase.QUEUED, reason, message, blocked=(reason, message)),
        requeue_after_seconds=INSTALLED_SECONDS,
    )


def not_recorded(observed: Observed, _: Settings) -> Verdict | None:
    """Our JobSet exists and is not recorded yet: it is recorded, and may run only after that.

    One that was made from another spec is replaced: the spec was edited between the operator's last read and the
    creation, and an edit that the API server has accepted counts. Nothing is lost, because it has not run.
    """
    if observed.status.internal.job_set_uid or observed.jobset is None:
        return None
    creating = Statement(Phase.QUEUED, Reason.CREATING, sentence(Reason.CREATING))
    if observed.jobset.being_deleted:
        return Verdict(condition_update=creating, requeue_after_seconds=POLL_SECONDS)
    job = observed.job
    if observed.jobset.spec_hash not in (None, spec_hash(job)):
        return Verdict(condition_update=creating, action=Action(Step.DELETE), requeue_after_seconds=POLL_SECONDS)
    return Verdict(condition_update=creating, status_update=_made_from(job, jobset_uid=True), requeue_after_seconds=0)


def as_recorded(observed: Observed) -> Observed:
    """The observation with its JobSet recorded, for the verdict that goes into the same write."""
    jobset = observed.jobset
    assert jobset is not None  # it is the one that is recorded
    recorded = {"job_set": jobset.name, "internal.job_set_uid": jobset.uid, "incarnation": jobset.incarnation}
    status = observed.status.updated(recorded)
    return replace(observed, manifest={**observed.manifest, "status": status.as_stored()})


def _made_from(job: TpuTrainingJob, *, jobset_uid: bool = False) -> Record:
    """The record of the spec that a JobSet is made from."""
    code = job.spec.code
    warnings = job_warnings(job, is_for_cluster=True) if jobset_uid else ()
    return Record(
        jobset_uid=jobset_uid,
        accelerator_note=job.accelerator.note,
        code_sha256=code.sha256 if code is not None else None,
        code_commit=code.commit if code is not None and code.repository is not None else None,
        warnings=warnings,
    )
