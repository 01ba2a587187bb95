"""The steps of programs that know nothing of tpujob, and one fault in one of them. Standard library.

Environment: FAULT, FAULT_PROCESS, FAULT_MARK as in `faulty_trainer`.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from tests.multiprocess.faulty_trainer import strike
from tests.multiprocess.pacing import REQUESTS, pause

STEP = 3
STEPS_AFTER = 10
"""Of an attempt that comes after the fault."""


SAVED_STEPS = 4
"""From one checkpoint to the next."""


def loop(process: int, step_together: Callable[[int], object]) -> None:
    """Steps for ever, or, once the fault has been, a few times."""
    if REQUESTS in os.environ:
        _count(process, step_together)
    is_after = Path(os.environ["FAULT_MARK"]).exists()
    for step in range(STEPS_AFTER) if is_after else itertools.count():
        step_together(step)
        print("step", step, flush=True)  # noqa: T201 - a program of a person
        if step == STEP and str(process) == os.environ["FAULT_PROCESS"]:
            strike(os.environ["FAULT"])
        pause()


def _count(process: int, step_together: Callable[[int], object]) -> None:
    """Steps from the last checkpoint on, for ever."""
    folder = Path(os.environ["TPUJOB_CHECKPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    first = max((int(each.name) for each in folder.iterdir() if each.name.isdecimal()), default=0) + 1
    for step in itertools.count(first):
        step_together(step)
        print("step", step, flush=True)  # noqa: T201
        if process == 0 and step % SAVED_STEPS == 0:
            unfinished = folder / f"{step}.unfinished"
            unfinished.mkdir(exist_ok=True)
            unfinished.rename(folder / str(step))
        pause()
