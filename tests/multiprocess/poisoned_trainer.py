"""The trainer's own main, in which two batches have a loss that is not finite, once the file POISON is there.

Process 0 alone spoils its rows of them: the loss is everybody's.
"""

import dataclasses
import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.multiprocess.pacing import pace_training

NO_TOKEN = 99_999
BATCHES = 2


def main() -> None:
    """Puts the poison in place and trains."""
    gc.disable()  # as `python -m tpujob_trainer` does
    pace_training()
    from tpujob_trainer import data
    from tpujob_trainer.main import main
    from tpujob_trainer.train.batches import Assembler, Feed
    from tpujob_trainer.train.step import Batch
    from tpujob_trainer.train.step_flags import StepFlags

    make, take, mark = Assembler.batch, Feed.take, Path(os.environ["POISON"])
    spoiled, is_training = 0, False

    def taken(self: Feed, get_flags: Callable[[], StepFlags]) -> Batch:
        nonlocal is_training
        is_training = True  # batches of an evaluation are made by the same assembler
        try:
            return take(self, get_flags)
        finally:
            is_training = False

    def batch(self: Assembler, local: data.LocalBatch, signals: StepFlags) -> Batch:
        nonlocal spoiled
        if is_training and spoiled < BATCHES and os.environ["TPUJOB_HOST"] == "0" and mark.exists():
            spoiled += 1
            targets = local.targets.copy()
            targets[0, 0] = NO_TOKEN
            local = dataclasses.replace(local, targets=targets, loss_mask=np.ones_like(local.loss_mask))
        return make(self, local, signals)

    Assembler.batch, Feed.take = batch, taken  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    main()
