"""Verdicts that keep a job off a node on which it crashed twice; `chain.CHAIN` puts them in order.

The pods of a JobSet are all made from one template that cannot change, so each of these starts a new incarnation: at a
restart, when all hosts start again anyway.
"""

from collections.abc import Sequence

from tpujob_contract.exit_codes import describe
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.node_failures import MOST_AVOIDED, avoided
from tpujob_operator.decide.checks import running
from tpujob_operator.decide.checks.between_attempts import is_between_attempts, same_run_anew
from tpujob_operator.decide.verdict import Statement, Verdict
from tpujob_operator.observe.state import Observed
from tpujob_resource.jobset.scheduling import avoidance_label
from tpujob_resource.messages.conditions import Reason, sentence
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.status import NodeFailures
from tpujob_resource.topology.errors import InvalidJob

LIFTED_AFTER_SECONDS = 60.0
"""Wait for a machine elsewhere. An autoscaler responds within it; while it adds a machine, the job waits longer.

A longer wait costs more than it gains: a program that crashes by itself looks the same, and if there is no other
machine, the whole wait is lost.
"""


def node_avoided(observed: Observed, _: Settings) -> Verdict | None:
    """The job has crashed too often on a node, and another attempt is about to start."""
    assert observed.jobset is not None  # an earlier check of the chain handles None
    before = observed.status.node_failures or []
    if observed.spec.suspend or not is_between_attempts(observed, observed.jobset):
        return None
    after = _with_suspects_avoided(observed, before)
    added = next((new for old, new in zip(before, after, strict=True) if new != old), None)
    if added is None:
        return None
    incarnation = observed.status.current_incarnation + 1
    message = sentence(
        Reason.NODE_AVOIDED,
        failures=added.failures,
        node=added.node,
        meaning="not known" if added.exit_code is None else describe(added.exit_code),
        incarnation=incarnation,
        label=f"{added.avoided_label}={added.avoided_value}",
    )
    return same_run_anew(Statement(Phase.RESTARTING, Reason.NODE_AVOIDED, message, is_valid=None), after)


def avoidance_lifted(observed: Observed, settings: Settings) -> Verdict | None:
    """The job has waited too long for a machine outside of those that it avoids."""
    status = observed.status
    entries = status.node_failures or []
    if not avoided(entries) or status.phase is not Phase.WAITING_FOR_CAPACITY or status.phase_time is None:
        return None
    waits = running.waiting_for_capacity(observed, settings)
    waited = (observed.now - status.phase_time).total_seconds()
    if waits is None or waits.condition_update.reason is Reason.SCALE_UP_REQUESTED or waited < LIFTED_AFTER_SECONDS:
        return None
    lifted = {"avoided_label": None, "avoided_value": None, "lifted": True}
    message = sentence(
        Reason.AVOIDANCE_LIFTED,
        seconds=round(LIFTED_AFTER_SECONDS),
        labels=", ".join(f"{label}={value}" for label, value in avoided(entries)),
        incarnation=status.current_incarnation + 1,
        detail=waits.condition_update.message,
    )
    after = [entry.model_copy(update=lifted) if entry.avoided_label else entry for entry in entries]
    return same_run_anew(Statement(Phase.QUEUED, Reason.AVOIDANCE_LIFTED, message, is_valid=None), after)


def _with_suspects_avoided(observed: Observed, entries: Sequence[NodeFailures]) -> list[NodeFailures]:
    if not any(entry.is_suspect for entry in entries):
        return list(entries)
    try:
        label = avoidance_label(observed.job)
    except InvalidJob:
        return list(entries)  # accepted by an earlier release; it runs as it was made
    if label is None:
        return list(entries)
    after: list[NodeFailures] = []
    for index, entry in enumerate(entries):
        value = observed.node_labels.get(entry.node, {}).get(label)
        others = avoided([*after, *entries[index:]])
        has_room = len(others) < MOST_AVOIDED or (label, value) in others
        is_new = entry.is_suspect and value is not None and has_room
        news = {"avoided_label": label, "avoided_value": value}
        after.append(entry.model_copy(update=news) if is_new else entry)
    return after
