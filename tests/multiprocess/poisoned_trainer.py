"""The trainer's own main, in which two batches have a loss that is not finite, once the file POISON is there.

Process 0 alone spoils its rows of them: the loss is everybody's.

Once the file HOLD is there, all processes stand still together after a step that is not saved: whoever kills them then
knows what they have done. EVALUATIONS is the file in which process 0 keeps step and loss of each evaluation.
"""

import dataclasses
import gc
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tests.multiprocess.pacing import pace_training

NO_TOKEN = 99_999
BATCHES = 2
EVERY = 5
"""Steps between saves and evaluations."""
HELD_AFTER = 2
"""So many steps after a save."""


def main() -> None:
    """Puts the poison in place and trains."""
    gc.disable()  # as `python -m tpujob_trainer` does
    pace_training()
    poison_batches()
    hold_together(Path(os.environ["HOLD"]), is_lead=os.environ["TPUJOB_HOST"] == "0")
    keep_evaluations(Path(os.environ["EVALUATIONS"]), is_lead=os.environ["TPUJOB_HOST"] == "0")
    wait_for_trackers()
    save_at_steps_alone()
    from tpujob_trainer.main import main

    main()


def poison_batches() -> None:
    """Has process 0 spoil two batches, once it is asked to."""
    from tpujob_trainer import data
    from tpujob_trainer.train.batches import Assembler, Feed
    from tpujob_trainer.train.save_policy import StepFlags
    from tpujob_trainer.train.step import Batch

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


def held_step(asked: Path) -> int | None:
    """The step after which the processes stand still; None while none was chosen."""
    chosen = asked.with_suffix(".step")
    return int(chosen.read_text()) if chosen.exists() else None


def hold_together(asked: Path, *, is_lead: bool) -> None:
    """Has all processes stand still at the same step, which process 0 chooses once it is asked to.

    A step needs both processes. So nobody is through with the chosen one before process 0, which chooses it two saves
    ahead, has begun it.
    """
    from tpujob_trainer.train.step_logger import Progress, StepResult

    record = Progress.record

    def recorded(self: Progress, result: StepResult, *, data_wait_seconds: float) -> None:
        record(self, result, data_wait_seconds=data_wait_seconds)
        if is_lead and asked.exists() and held_step(asked) is None:
            written = asked.with_suffix(".new")
            written.write_text(str((result.step // EVERY + 2) * EVERY + HELD_AFTER))
            written.replace(asked.with_suffix(".step"))
        if result.step == held_step(asked):
            threading.Event().wait()

    Progress.record = recorded  # type: ignore[method-assign]


def evaluations(file: Path) -> list[tuple[int, float]]:
    """Step and loss, to the last bit, of a process that has ended."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(int(step), float.fromhex(loss)) for step, loss in lines]


def keep_evaluations(file: Path, *, is_lead: bool) -> None:
    """Has process 0 write down what it tells of evaluations."""
    from tpujob_trainer.train.step_logger import Progress

    evaluated = Progress.evaluated

    def kept(
        self: Progress, step: int, loss: float, metrics: Mapping[str, float], *, tokens: int, seconds: float
    ) -> None:
        evaluated(self, step, loss, metrics, tokens=tokens, seconds=seconds)
        if is_lead:
            with file.open("a") as opened:
                opened.write(f"{step} {loss.hex()}\n")

    Progress.evaluated = kept  # type: ignore[method-assign]


def wait_for_trackers() -> None:
    """Gives trackers all the time they need at the end: a busy machine is no reason to leave them."""
    from tpujob_trainer.tasks import pretrain

    pretrain.TRACKERS_SECONDS = 300.0


def save_at_steps_alone() -> None:
    """Tries no save again that was passed over: every step that is saved is evaluated, too."""
    from tpujob_trainer.session import checkpointing

    checkpointing.PASSED_OVER_SECONDS = float("inf")


if __name__ == "__main__":
    main()
