"""Settings for the checkpoints of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.checkpoint.retention import Retention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings, the same on all processes of a run."""

    retention: Retention
    """Which checkpoints stay."""
    limit_seconds: float = 600.0
    """A save that is not committed by then has failed."""
    fail_after_seconds: float = 3600.0
    """While saves fail: the age of the last commit at which the run ends."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values kept with every checkpoint (configuration, versions)."""
    replica_axis: str | None = None
    """The mesh axis along which arrays are replicated: one slice reads for all. None: every process reads."""
