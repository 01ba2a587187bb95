"""The parts of a verdict on a job: its phase, the reason for it, and the one step that follows."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages.conditions import Reason
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.status import NodeFailures

POLL_SECONDS = 2.0
"""Seconds until the next reconcile if no watch reports the awaited change."""
BACKSTOP_SECONDS = 15.0
"""The same if a watch should report it, and only obstacles (Events, which are not watched) have to be read."""

type Object = dict[str, Any]


class Step(Enum):
    """The one thing to do to the JobSet, after the status is written."""

    CREATE = auto()
    RESUME = auto()
    SUSPEND = auto()
    DELETE = auto()


@dataclass(frozen=True)
class Statement:
    """The job's phase, its conditions and, if the phase or the reason is new, an Event."""

    phase: Phase
    reason: Reason
    message: str
    is_valid: bool | None = True
    """Of the spec; None: it was not checked."""
    blocked: tuple[Reason, str] | None = None
    stalled: tuple[Reason, str] | None = None


@dataclass(frozen=True)
class Action:
    """What is done to the JobSet."""

    step: Step | None = None
    manifest: Object | None = None
    """The JobSet to create."""
    secret: Object | None = None
    """The Secret to create before it, without its text."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is recorded in addition to the statement."""

    jobset_uid: bool = False
    """Whether the JobSet's uid is recorded: the commit of its creation."""
    new_incarnation: bool = False
    """Whether a new incarnation starts: the recorded JobSet and its status are dropped."""
    accelerator_note: str | None = None
    """What the accelerator's name stands for; set with `Step.CREATE` and with `jobset_uid`."""
    warnings: tuple[str, ...] = ()
    """What the spec may contain, but is probably not intended; set with `jobset_uid`."""
    code_sha256: str | None = None
    """Digest of the job's own code, if that is an archive; set with `Step.CREATE` and with `jobset_uid`."""
    code_commit: str | None = None
    """Commit of the job's own code, if that is a repository; set with `Step.CREATE` and with `jobset_uid`."""
    hosts: int | None = None
    hosts_ready: int | None = None
    next_restart: datetime | None = None
    """When the next attempt may start, if it is delayed."""
    slices: int | None = None
    """The new incarnation's number of slices, set with `node_failures`; None: unchanged."""
    node_failures: tuple[NodeFailures, ...] | None = None
    """The new incarnation's failures by node, set with `new_incarnation` if the same run continues."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state in which a job is found, and what follows."""

    condition_update: Statement
    action: Action = Action()
    status_update: Record = Record()
    requeue_after_seconds: float | None = None
    """Until the next reconcile; None: a watch event triggers it."""


type Check = Callable[[Observed, Settings], Verdict | None]
