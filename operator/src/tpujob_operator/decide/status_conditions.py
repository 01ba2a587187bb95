"""The conditions that a verdict and a report make of the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.api.conditions import TERMINAL, Reason, Type, ended, sentence, set_condition
from tpujob_operator.api.status import Phase
from tpujob_operator.decide.verdict import Verdict
from tpujob_operator.observe.state import Observed
from tpujob_operator.times import format_time

type Fact = tuple[Type, bool, Reason, str]
"""Condition type, its status, reason and message."""


def conditions_after(observed: Observed, verdict: Verdict) -> list[dict[str, Any]]:
    """All conditions, in the order in which they first applied; equal to the recorded ones when nothing has changed."""
    conditions = [dict(c) for c in observed.status.get("conditions") or []]
    known = {c["type"] for c in conditions}
    for kind, status, reason, message in (
        *_of_verdict(verdict, known),
        *_of_network_policy(observed, known),
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


def _of_verdict(verdict: Verdict, known: set[str]) -> Iterator[Fact]:
    if verdict.valid is not None:
        reason = Reason.ACCEPTED if verdict.valid else Reason.REJECTED
        yield Type.VALID, verdict.valid, reason, sentence(Reason.ACCEPTED) if verdict.valid else verdict.message
    if verdict.phase is not Phase.INVALID:
        ended = verdict.phase in TERMINAL
        reason, message = (Reason.ENDED, sentence(Reason.ENDED)) if ended else (verdict.reason, verdict.message)
        if verdict.stalled is not None:
            # The hosts do run; what is wrong has a condition of its own.
            message = verdict.stalled[1]
        yield Type.RUNNING, verdict.phase in (Phase.RUNNING, Phase.STALLED), reason, message
    for kind, finding, otherwise in (
        (Type.BLOCKED, verdict.blocked, Reason.UNBLOCKED),
        (Type.STALLED, verdict.stalled, Reason.PROGRESSING),
    ):
        if finding is not None:
            yield kind, True, *finding
        elif kind in known:
            yield kind, False, otherwise, sentence(otherwise)
    if verdict.phase in TERMINAL:
        kind = Type.SUCCEEDED if verdict.phase is Phase.SUCCEEDED else Type.FAILED
        yield kind, True, verdict.reason, verdict.message


def _of_network_policy(observed: Observed, known: set[str]) -> Iterator[Fact]:
    """Only said once a foreign NetworkPolicy has stood in the way: the usual needs no condition."""
    found = observed.network_policy
    if found is None:
        return
    if found.spec is not None and observed.uid not in found.owner_uids:
        name = kubernetes_names.child_name(observed.manifest["metadata"]["name"])
        reason = Reason.NETWORK_POLICY_NAME_TAKEN
        yield Type.ISOLATED, False, reason, sentence(reason, name=name)
    elif Type.ISOLATED in known:
        yield Type.ISOLATED, True, Reason.NETWORK_POLICY_MADE, sentence(Reason.NETWORK_POLICY_MADE)


def _of_report(observed: Observed) -> Iterator[Fact]:
    """What process 0 says of the parts of it that may fail while training goes on; nothing while it does not say."""
    progress = observed.progress
    if progress is None:
        return
    if progress.is_checkpoint_healthy:
        yield Type.CHECKPOINT_HEALTHY, True, Reason.SAVES_SUCCEED, sentence(Reason.SAVES_SUCCEED)
    elif progress.is_checkpoint_healthy is False:
        assert progress.checkpoint_failing_since is not None  # or it would be well
        committed = progress.committed_step
        message = sentence(
            Reason.SAVES_FAIL,
            since=format_time(progress.checkpoint_failing_since),
            detail=ended(progress.checkpoint_message or "no reason was given"),
            step="0" if committed is None else committed,
            directory=observed.spec.get("checkpointDir", ""),
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
