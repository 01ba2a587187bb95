"""From what was seen to what to do: pure, so that everything interesting about the operator can be tested as a table.

How there comes to be exactly one JobSet, whatever is replayed, interrupted or late:

1. The JobSet is created *suspended*, under a name that follows from the job's. A create that finds the name taken does
   nothing.
2. Its uid is written into the job's status, with the resource version that was read. This is the commit.
3. Only a JobSet whose uid is recorded is resumed, and once one is recorded no other is ever created.

A crash between 1 and 2 leaves a JobSet that has not run and so cannot have finished or reached its ttl: it is there to
be found. A create that comes late (a paused operator wakes up after the job has ended) makes a JobSet that nobody
resumes; it is deleted. No finalizer is needed, and deletion of the job works while the operator is down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_operator import status as draft
from tpujob_operator import verdicts_creation as creation
from tpujob_operator import verdicts_running as life
from tpujob_operator.conditions import TERMINAL
from tpujob_operator.observed import Observed
from tpujob_operator.resource_status import Phase
from tpujob_operator.settings import Settings
from tpujob_operator.verdict import Check, Object, Step, Verdict

CHAIN: tuple[Check, ...] = (
    # First, so that nothing revives a job: the JobSet of one that has ended is deleted by its ttl, and its spec may
    # change.
    life.over,
    # Before anything is created. A job that has its JobSet is past this.
    creation.impossible,
    # Whose JobSet is it? Everything after these two may take the JobSet for ours, and for the recorded one if one is
    # recorded.
    creation.somebody_elses,
    creation.stray,
    # Before `not_created`: a recorded JobSet that is missing was deleted, and is not made again.
    creation.vanished,
    creation.not_created,
    # Before all that lets it run.
    creation.not_recorded,
    # The ends, before what asks about hosts: pods are deleted around the end, and that is no restart.
    life.succeeded,
    life.failed,
    # After `failed`: a fatal code says more than a number of crashes.
    life.spent,
    # Before `starting`: no host is awaited while the JobSet is suspended.
    life.suspended,
    life.starting,
    # Answers always.
    life.running,
)


@dataclass(frozen=True, kw_only=True)
class Note:
    """A Kubernetes Event for the job: written once per phase and generation."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, in this order: write the status if it differs, then the step, then look again."""

    status: Mapping[str, Any]
    """The whole status as it should be."""
    step: Step | None = None
    manifest: Object | None = None
    note: Note | None = None
    again_seconds: float | None = None


def decide(observed: Observed, settings: Settings) -> Decision:
    """What follows from what was seen."""
    verdict = judge(observed, settings)
    return Decision(
        status=draft.written(observed, verdict),
        step=verdict.step,
        manifest=verdict.manifest,
        note=_note(observed, verdict),
        again_seconds=verdict.again_seconds,
    )


def judge(observed: Observed, settings: Settings) -> Verdict:
    """The first verdict of the chain that has something to say."""
    for check in CHAIN:
        verdict = check(observed, settings)
        if verdict is not None:
            return verdict
    raise AssertionError("the last of the chain always answers")


def _note(observed: Observed, verdict: Verdict) -> Note | None:
    if verdict.phase not in (*TERMINAL, Phase.INVALID) or verdict.phase == observed.status.get("phase"):
        return None
    return Note(warning=verdict.phase != Phase.SUCCEEDED, reason=str(verdict.reason), message=verdict.message)
