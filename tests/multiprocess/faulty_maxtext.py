"""A fault put into one process of MaxText, from outside: when it logs the end of a step. Standard library.

Environment: FAULT, FAULT_PROCESS, FAULT_MARK as in `faulty_trainer`.
"""

import logging
import os

from tests.multiprocess.faulty_trainer import strike
from tests.multiprocess.pacing import pause

STEP = 3


def prepare() -> None:
    """Has the fault come in this process, if it is the one, and each step take its time."""
    call_handlers = logging.Logger.callHandlers
    is_victim = os.environ["TPUJOB_HOST"] == os.environ["FAULT_PROCESS"]

    def called(self: logging.Logger, record: logging.LogRecord) -> None:
        call_handlers(self, record)
        if record.getMessage().startswith("completed step: "):
            pause()
            if is_victim and f"completed step: {STEP}," in record.getMessage():
                strike(os.environ["FAULT"])

    # Not `handle`: absl's logger, which MaxText writes with, has its own.
    logging.Logger.callHandlers = called  # type: ignore[method-assign]
