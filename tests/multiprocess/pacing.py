"""Runs that are waited for take their steps at a pace: at full speed they would take the machine from the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpujob_trainer.train.batches import Feed
    from tpujob_trainer.train.save_policy import StepFlags
    from tpujob_trainer.train.step import Batch

STEP_SECONDS = 0.05
"""At least."""


REQUESTS = "FAULT_REQUESTS"
"""A folder: a file there with the name of a process asks it for the fault that the file names."""


def pause(seconds: float = STEP_SECONDS) -> None:
    """Lets that much time go by; then the fault comes that somebody asks for."""
    threading.Event().wait(seconds)
    if REQUESTS in os.environ:
        request = Path(os.environ[REQUESTS]) / os.environ["TPUJOB_HOST"]
        if request.exists():
            from tests.multiprocess.faulty_trainer import FAULTS

            fault = request.read_text()
            request.unlink()
            FAULTS[fault]()


def pace_training() -> None:
    """Has the trainer of this process pause before each batch."""
    from tpujob_trainer.train.batches import Feed

    take = Feed.take

    def taken(self: Feed, get_flags: Callable[[], StepFlags]) -> Batch:
        pause()
        return take(self, get_flags)

    Feed.take = taken  # type: ignore[method-assign]
