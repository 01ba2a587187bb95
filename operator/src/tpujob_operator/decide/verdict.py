"""What a verdict on a job consists of: where the job is, why, and the one step that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from tpujob_operator.observe.state import Observed
from tpujob_operator.settings import Settings
from tpujob_resource.messages.conditions import Reason
from tpujob_resource.models.status import NodeFailures, Phase

POLL_SECONDS = 2.0
"""Seconds until another look at something whose end no watch announces."""
BACKSTOP_SECONDS = 15.0
"""The same where a watch should announce it, and only obstacles (events, not watched) have to be looked for."""

type Object = dict[str, Any]


class Step(Enum):
    """The one thing to do to the JobSet, after the status is written."""

    CREATE = auto()
    RESUME = auto()
    SUSPEND = auto()
    DELETE = auto()


@dataclass(frozen=True)
class Statement:
    """The job's phase, its conditions and, where the phase or the reason is new, an Event."""

    phase: Phase
    reason: Reason
    message: str
    is_valid: bool | None = True
    """Of the spec; None when it was not looked at."""
    blocked: tuple[Reason, str] | None = None
    stalled: tuple[Reason, str] | None = None


@dataclass(frozen=True)
class Action:
    """What is done to the JobSet."""

    step: Step | None = None
    manifest: Object | None = None
    """The JobSet to create."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is written down beside the statement."""

    jobset_uid: bool = False
    """Whether the JobSet's uid is recorded: the commit of its creation."""
    new_incarnation: bool = False
    """Whether a new incarnation starts: the recorded JobSet and its status are dropped."""
    accelerator_note: str | None = None
    """What the accelerator's name amounts to; goes with `Step.CREATE`."""
    warnings: tuple[str, ...] = ()
    """What is allowed in the spec and probably not meant; goes with `jobset_uid`."""
    code_sha256: str | None = None
    """Digest of the job's own code, if that is an archive; goes with `Step.CREATE`."""
    code_commit: str | None = None
    """Commit of the job's own code, if that is a repository; goes with `Step.CREATE`."""
    hosts: int | None = None
    hosts_ready: int | None = None
    next_restart: datetime | None = None
    """When the job goes on, if that is put off."""
    slices: int | None = None
    """How many the new incarnation has, where that is news; goes with `node_failures`."""
    node_failures: tuple[NodeFailures, ...] | None = None
    """What the new incarnation knows of nodes; goes with `new_incarnation`, and means that the same run goes on."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a job is found to be in, and what follows."""

    condition_update: Statement
    action: Action = Action()
    status_update: Record = Record()
    requeue_after_seconds: float | None = None
    """Until another look; None when events will tell."""


type Check = Callable[[Observed, Settings], Verdict | None]
