"""The conditions after a verdict and a report."""

from collections.abc import Iterator

from tpujob_contract import kubernetes_names
from tpujob_operator.decide.checks.slice_count import is_watched
from tpujob_operator.decide.verdict import Statement, Verdict
from tpujob_operator.observe.state import JobSetState, Observed
from tpujob_resource.messages.conditions import Reason, Type, ended, sentence, set_condition
from tpujob_resource.models.phases import RUNNING_PHASES, TERMINAL, Phase
from tpujob_resource.models.status import Condition
from tpujob_resource.models.times import format_time

type Fact = tuple[Type, bool, Reason, str]
"""Condition type, its status, reason and message."""


def conditions_after(observed: Observed, verdict: Verdict) -> list[Condition]:
    """All conditions, in the order in which they first applied; equal to the recorded ones when nothing has changed."""
    conditions = list(observed.status.conditions or [])
    known = {condition.type for condition in conditions}
    for kind, status, reason, message in (
        *_of_statement(verdict.condition_update, known),
        *_of_isolation(observed, known),
        *_of_size(observed),
        *_of_report(observed),
    ):
        conditions = set_condition(
            conditions,
            kind,
            status=status,
            reason=reason,
            message=message,
            generation=observed.generation,
            now=observed.now,
        )
    return conditions


def _of_statement(condition_update: Statement, known: set[str]) -> Iterator[Fact]:
    if condition_update.is_valid is not None:
        reason = Reason.ACCEPTED if condition_update.is_valid else Reason.REJECTED
        yield (
            Type.VALID,
            condition_update.is_valid,
            reason,
            sentence(Reason.ACCEPTED) if condition_update.is_valid else condition_update.message,
        )
    if condition_update.phase is not Phase.INVALID:
        ended = condition_update.phase in TERMINAL
        reason, message = (
            (Reason.ENDED, sentence(Reason.ENDED)) if ended else (condition_update.reason, condition_update.message)
        )
        if condition_update.stalled is not None:
            # The hosts do run; what is wrong has a condition of its own.
            message = condition_update.stalled[1]
        yield Type.RUNNING, condition_update.phase in RUNNING_PHASES, reason, message
    for kind, finding, otherwise in (
        (Type.BLOCKED, condition_update.blocked, Reason.UNBLOCKED),
        (Type.STALLED, condition_update.stalled, Reason.PROGRESSING),
    ):
        if finding is not None:
            yield kind, True, *finding
        elif kind in known:
            yield kind, False, otherwise, sentence(otherwise)
    if condition_update.phase in TERMINAL:
        kind = Type.SUCCEEDED if condition_update.phase is Phase.SUCCEEDED else Type.FAILED
        yield kind, True, condition_update.reason, condition_update.message


def _of_isolation(observed: Observed, known: set[str]) -> Iterator[Fact]:
    """Set only after an obstacle to the job's NetworkPolicy: the usual case needs no condition."""
    jobset, found = observed.jobset, observed.network_policy
    if jobset is not None and jobset.host_network and _is_of_this_incarnation(jobset, observed):
        # Regardless of the policy: none applies to pods on the network of their nodes.
        yield Type.ISOLATED, False, Reason.HOST_NETWORK, sentence(Reason.HOST_NETWORK)
        return
    if found is None:
        return
    if found.spec is not None and observed.uid not in found.owner_uids:
        name = kubernetes_names.child_name(observed.name)
        reason = Reason.NETWORK_POLICY_NAME_TAKEN
        yield Type.ISOLATED, False, reason, sentence(reason, name=name)
    elif Type.ISOLATED in known:
        yield Type.ISOLATED, True, Reason.NETWORK_POLICY_MADE, sentence(Reason.NETWORK_POLICY_MADE)


def _of_size(observed: Observed) -> Iterator[Fact]:
    jobset, status, wanted = observed.jobset, observed.status, observed.spec.slices or 1
    if jobset is None or not is_watched(observed) or not _is_of_this_incarnation(jobset, observed):
        return
    if jobset.slices >= wanted:
        yield Type.FULL_SIZE, True, Reason.ALL_SLICES, sentence(Reason.ALL_SLICES, wanted=wanted)
        return
    changed, growth = status.slices.changed_time, status.slices.next_growth_time
    since = "" if changed is None else f" since {format_time(changed)}"
    earliest = "" if growth is None else f", not before {format_time(growth)}"
    message = sentence(Reason.SLICES_MISSING, slices=jobset.slices, wanted=wanted, since=since, earliest=earliest)
    yield Type.FULL_SIZE, False, Reason.SLICES_MISSING, message


def _is_of_this_incarnation(jobset: JobSetState, observed: Observed) -> bool:
    return jobset.owner_uid == observed.uid and jobset.incarnation == observed.status.current_incarnation


def _of_report(observed: Observed) -> Iterator[Fact]:
    """Conditions of saves and input data, as process 0 reports them; nothing while it does not."""
    progress = observed.progress
    if progress is None:
        return
    if progress.is_checkpoint_healthy:
        yield Type.CHECKPOINT_HEALTHY, True, Reason.SAVES_SUCCEED, sentence(Reason.SAVES_SUCCEED)
    elif progress.is_checkpoint_healthy is False:
        assert progress.checkpoint_failing_since is not None  # or it would be healthy
        committed = progress.committed_step
        message = sentence(
            Reason.SAVES_FAIL,
            since=format_time(progress.checkpoint_failing_since),
            detail=ended(progress.checkpoint_message or "no reason was given"),
            step="0" if committed is None else committed,
            directory=observed.spec.checkpoint_dir or "",
        )
        yield Type.CHECKPOINT_HEALTHY, False, Reason.SAVES_FAIL, message
    if progress.is_data_healthy:
        yield Type.DATA_HEALTHY, True, Reason.DATA_FLOWS, sentence(Reason.DATA_FLOWS)
    elif progress.is_data_healthy is False:
        fraction = progress.data_wait_fraction
        share = "" if fraction is None else f" for {fraction:.0%} of the time"
        yield (
            Type.DATA_HEALTHY,
            False,
            Reason.DATA_SLOW,
            sentence(Reason.DATA_SLOW, share=share, detail=ended(progress.data_message)),
        )
