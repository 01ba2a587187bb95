"""The trainer's own main, in which two batches have a loss that is not finite, once the file POISON is there.

Process 0 alone spoils its rows of them: the loss is everybody's.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np

NO_TOKEN = 99_999
BATCHES = 2


def main() -> None:
    """Puts the poison in place and trains."""
    from tpujob_trainer import data
    from tpujob_trainer.batches import Assembler
    from tpujob_trainer.main import main
    from tpujob_trainer.signals import Signals
    from tpujob_trainer.train_step import Batch

    make, mark, spoiled = Assembler.batch, Path(os.environ["POISON"]), 0

    def batch(self: Assembler, local: data.LocalBatch, signals: Signals) -> Batch:
        nonlocal spoiled
        if spoiled < BATCHES and os.environ["TPUJOB_HOST"] == "0" and mark.exists():
            spoiled += 1
            targets = local.targets.copy()
            targets[0, 0] = NO_TOKEN
            local = dataclasses.replace(local, targets=targets, loss_mask=np.ones_like(local.loss_mask))
        return make(self, local, signals)

    Assembler.batch = batch  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    main()
