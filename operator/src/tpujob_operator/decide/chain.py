"""Decides what to do about a job from an observation of it: pure functions, which can be tested as a table.

Why there is exactly one JobSet, whatever is replayed, interrupted or late:

1. The JobSet is created *suspended*, under a name that follows from the job's. A create that finds the name taken does
   nothing.
2. Its uid is written into the job's status, with the resource version that was read. This is the commit; its
   consequences may be part of the same write, and are carried out after it.
3. Only a JobSet whose uid is recorded is resumed, and once one is recorded no other is ever created.

A crash between 1 and 2 leaves a JobSet that has not run and so cannot have finished or reached its ttl: the next
reconcile finds it. A create that comes late (a paused operator wakes up after the job has ended) makes a JobSet that is
never resumed; it is deleted. No finalizer is needed, and deletion of the job works while the operator is down.

An edited spec starts another incarnation: the commit is a status with the new incarnation's number and no JobSet. From
then on the old JobSet, which has its own number, is deleted, and the next one is created as above.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide import in_place
from tpujob_operator.decide.checks import completion, creation, node_avoidance, resize, running, slice_count
from tpujob_operator.decide.record import status as status_after
from tpujob_operator.decide.verdict import Check, Object, Step, Verdict
from tpujob_operator.observe.state import Observed
from tpujob_resource.jobset.access import network_policy
from tpujob_resource.messages.conditions import Reason, Type, condition, sentence
from tpujob_resource.models.phases import TERMINAL, Phase, Traits, phases_with
from tpujob_resource.models.status import InPlaceAttempt, Status
from tpujob_resource.topology.errors import InvalidJob

CHAIN: tuple[Check, ...] = (
    # These restart a job that has ended, so they come before the check that leaves it as it is.
    creation.edited,
    creation.retried,
    # Before all others, so that nothing else restarts a job that has ended: its JobSet is deleted after its ttl, and
    # fields of its spec change in place.
    completion.already_terminal,
    # Before anything is created. A job with a recorded JobSet is not checked again.
    creation.invalid_spec,
    # Whether the JobSet is ours. After this check and `unrecorded_jobset` it is, and it is the recorded one if one is
    # recorded.
    creation.name_conflict,
    # Before the check that would record it.
    creation.earlier_incarnation,
    creation.suspended_without_jobset,
    creation.unrecorded_jobset,
    # Before `not_created`: a recorded JobSet that is missing was deleted, and is not made again.
    creation.jobset_deleted,
    creation.not_created,
    # Before all checks that let it run.
    creation.not_recorded,
    # The ends, before the checks of hosts: pods are deleted at the end, which is no restart.
    completion.succeeded,
    completion.failed,
    # After `failed`: a JobSet that has failed needs no step. A fatal code explains more than a number of crashes, so it
    # comes before `restart_limit_exceeded`.
    completion.fatal_exit_code,
    completion.restart_limit_exceeded,
    completion.unexplained_limit_exceeded,
    completion.deadline_exceeded,
    # Before all checks that wait, or start another incarnation.
    running.namespace_deleted,
    # Before the pause, which then applies to the JobSet of the next incarnation.
    node_avoidance.node_avoided,
    # Before the checks that would resume the JobSet.
    running.service_taken,
    running.restart_paused,
    # Before the checks of hosts: none is expected while the JobSet is suspended.
    slice_count.queued_smaller,
    running.suspended,
    # All checks below can rely on a JobSet that is not suspended.
    slice_count.grown,
    # Before `shrunk`: machines that are only avoided do not count as missing.
    node_avoidance.avoidance_lifted,
    slice_count.shrunk,
    # Before `restarting`: what a restart waits for is more useful to know than its cause.
    running.waiting_for_capacity,
    running.restarting,
    running.starting,
    running.stalled,
    # Always returns a verdict.
    running.running,
)


@dataclass(frozen=True, kw_only=True)
class Note:
    """A Kubernetes Event for the job, written when its phase or the reason for it changes."""

    warning: bool
    reason: str
    message: str
    key: str = ""
    """Distinguishes several Events with the same reason."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, in this order: write the status if it differs, then the step, then reconcile again."""

    status: Status
    """The desired status, complete."""
    patch: Mapping[str, Any]
    """The merge patch from the recorded status to the desired one; empty if they are equal."""
    step: Step | None = None
    manifest: Object | None = None
    secret: Object | None = None
    """The Secret to create before the JobSet, without its text."""
    network_policy: Object | None = None
    """The NetworkPolicy to create before the step; with a uid, a merge patch of the observed one."""
    workers: int | None = None
    """The new size of the Job of independent workers; None: no change."""
    note: Note | None = None
    in_place_notes: tuple[Note, ...] = ()
    """One for each newly counted restart in the same pods."""
    requeue_after_seconds: float | None = None


NEEDS_NO_POLICY = (*TERMINAL, Phase.INVALID)
"""Phases in which no pod of the job runs."""
WARNING_PHASES = phases_with(Traits.WARNING)
"""Phases whose Events are warnings."""


def decide(observed: Observed, settings: Settings) -> Decision:
    """The decision that follows from an observation."""
    verdict = judge(observed, settings)
    status = status_after.written(observed, verdict, settings)
    return Decision(
        status=status,
        patch=status_after.difference(observed.status, status),
        step=verdict.action.step,
        manifest=verdict.action.manifest,
        secret=verdict.action.secret,
        network_policy=_network_policy(observed, verdict, settings),
        workers=_workers(observed, verdict, settings),
        note=_note(observed, verdict),
        in_place_notes=tuple(map(_in_place_note, in_place.news(observed.status, status))),
        requeue_after_seconds=_requeue_after_seconds(observed, verdict),
    )


def judge(observed: Observed, settings: Settings) -> Verdict:
    """The verdict on a job.

    A JobSet is recorded in the same write as the verdict that follows from it: the status is written before the step,
    so a JobSet that is not recorded is not resumed.
    """
    verdict = _first(observed, settings)
    if not verdict.status_update.jobset_uid:
        return verdict
    following, made = _first(creation.as_recorded(observed), settings), verdict.status_update
    status_update = replace(
        following.status_update,
        jobset_uid=True,
        accelerator_note=made.accelerator_note,
        code_sha256=made.code_sha256,
        code_commit=made.code_commit,
        warnings=made.warnings,
    )
    return replace(following, status_update=status_update)


def _first(observed: Observed, settings: Settings) -> Verdict:
    """The verdict of the first check in the chain that returns one."""
    for check in CHAIN:
        verdict = check(observed, settings)
        if verdict is not None:
            return verdict
    raise AssertionError("the last of the chain always answers")


def _workers(observed: Observed, verdict: Verdict, settings: Settings) -> int | None:
    is_over = verdict.condition_update.phase in TERMINAL or verdict.status_update.new_incarnation
    return None if is_over else resize.wanted_workers(observed, settings)


def _network_policy(observed: Observed, verdict: Verdict, settings: Settings) -> Object | None:
    """The NetworkPolicy to create or patch, before anything can run; None: nothing is to be done."""
    found = observed.network_policy
    if found is None or verdict.condition_update.phase in NEEDS_NO_POLICY or verdict.status_update.new_incarnation:
        return None
    try:
        wanted = network_policy(observed.job, settings)
    except InvalidJob:
        return None  # accepted by an earlier release; it runs as it was made
    if found.spec is None:
        return wanted
    if observed.uid not in found.owner_uids or found.spec == wanted["spec"]:
        return None  # a foreign one is reported in a condition, and never changed
    unwanted = dict.fromkeys(found.spec.keys() - wanted["spec"].keys())
    precondition = {"uid": found.uid, "resourceVersion": found.resource_version}
    return {"metadata": {**wanted["metadata"], **precondition}, "spec": {**unwanted, **wanted["spec"]}}


def _requeue_after_seconds(observed: Observed, verdict: Verdict) -> float | None:
    """Seconds until the next reconcile, at the latest at the job's deadline."""
    due = completion.deadline(observed)
    if due is None or verdict.condition_update.phase in TERMINAL:
        return verdict.requeue_after_seconds
    left = (due - observed.now).total_seconds()
    if left <= 0:
        return verdict.requeue_after_seconds
    return left if verdict.requeue_after_seconds is None else min(left, verdict.requeue_after_seconds)


def _in_place_note(record: InPlaceAttempt) -> Note:
    reason = Reason.RESTARTED_IN_PLACE
    message = sentence(reason, number=record.number, cause=in_place.cause_in_words(record))
    return Note(warning=True, reason=str(reason), message=message, key=f"{record.attempt}.{record.number}")


def _note(observed: Observed, verdict: Verdict) -> Note | None:
    """The Event for a change of phase or of its reason."""
    condition_update = verdict.condition_update
    if condition_update.reason in (Reason.ENDED, Reason.CREATING):
        return None  # over, or about to get a reason that is worth an Event
    before = condition(observed.status, Type.RUNNING)
    is_same_reason = before is not None and before.reason == condition_update.reason
    if condition_update.phase == observed.status.phase and (
        condition_update.phase in (*TERMINAL, Phase.INVALID) or is_same_reason
    ):
        return None
    is_warning = condition_update.blocked is not None or condition_update.phase in WARNING_PHASES
    return Note(warning=is_warning, reason=str(condition_update.reason), message=condition_update.message)
