"""The steps of programs that know nothing of tpujob, and one fault in one of them. Standard library.

Environment: FAULT, FAULT_PROCESS, FAULT_MARK as in `faulty_trainer`.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from tests.multiprocess.faulty_trainer import strike
from tests.multiprocess.pacing import pause

STEP = 3
STEPS_AFTER = 10
"""Of an attempt that comes after the fault."""


def loop(process: int, step_together: Callable[[int], object]) -> None:
    """Steps for ever, or, once the fault has been, a few times."""
    is_after = Path(os.environ["FAULT_MARK"]).exists()
    for step in range(STEPS_AFTER) if is_after else itertools.count():
        step_together(step)
        print("step", step, flush=True)  # noqa: T201 - a program of a person
        if step == STEP and str(process) == os.environ["FAULT_PROCESS"]:
            strike(os.environ["FAULT"])
        pause()
