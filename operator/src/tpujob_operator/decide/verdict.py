"""What a verdict on a job consists of: where the job is, why, and the one step that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from tpujob_operator.api.conditions import Reason
from tpujob_operator.api.status import Phase
from tpujob_operator.observe.state import Observed
from tpujob_operator.settings import Settings

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
    renew: bool = False
    """Whether to begin a new incarnation: forget the recorded JobSet and all that was said of it."""
    accelerator_note: str | None = None
    """What the accelerator's name amounts to; goes with `Step.CREATE`."""
    hosts: int | None = None
    hosts_ready: int | None = None
    blocked: tuple[Reason, str] | None = None
    stalled: tuple[Reason, str] | None = None
    next_restart: datetime | None = None
    """When the job goes on, if that is put off."""
    again_seconds: float | None = None


type Check = Callable[[Observed, Settings], Verdict | None]
