"""Callbacks for the results of saves and restores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tpujob_trainer.checkpoint.layout import Commit


@dataclasses.dataclass
class Listener:
    """Called in the thread that calls `Checkpoints.save` and `poll`."""

    saved: Callable[[int, float], None] = lambda step, blocking_seconds: None
    committed: Callable[[Commit, float], None] = lambda commit, seconds: None
    failed: Callable[[int, str], None] = lambda step, why: None
    passed_over: Callable[[int, str], None] = lambda step, why: None
    unusable: Callable[[int, str], None] = lambda step, why: None
