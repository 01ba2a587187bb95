"""What decides how the checkpoints of a run are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.checkpoint.retention import Retention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The same on all processes of a run."""

    retention: Retention
    """Which checkpoints stay."""
    limit_seconds: float = 600.0
    """A save that is not committed by then has failed."""
    fail_after_seconds: float = 3600.0
    """While saves fail: the age of the last commit at which the run ends."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values kept with every checkpoint (configuration, versions)."""
    replica_axis: str | None = None
    """The axis of the mesh whose parts hold the same arrays: one of them reads for all. None: every process reads."""
