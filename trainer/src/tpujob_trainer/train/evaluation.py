"""The loss on text that is not learned from, now and then between two steps; on all processes, the same on all.

The same batches each time. A request to stop travels in them as in those of training: all processes leave an
evaluation at the same batch, and the loop stops in order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpujob_trainer.config.rules import EVALUATION_LOSS
from tpujob_trainer.data import LocalBatch
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.eval_step import EvaluationStep, RowLosses
from tpujob_trainer.train.step import Batch, TrainState
from tpujob_trainer.train.step_flags import StepFlags, unpack
from tpujob_trainer.train.step_logger import Progress

logger = logging.getLogger(__name__)

OpenBatches = Callable[[], contextlib.AbstractContextManager[Iterator[LocalBatch]]]
"""Restarts the evaluation's batches."""


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found."""

    loss: float
    """Mean over all positions that count, in nats per token."""
    metrics: tuple[float, ...]
    """The mean of each metric of the user's own, in their order."""
    tokens: int
    """Positions that counted."""
    seconds: float


class Evaluation:
    """Evaluates the state that it is given; a hook of the loop."""

    def __init__(
        self,
        step: EvaluationStep,
        open_batches: OpenBatches,
        assembler: Assembler,
        progress: Progress,
        *,
        every_steps: int,
        weights_of: Callable[[TrainState], Weights] = lambda state: state.weights,
        metrics: Sequence[str] = (),
        record: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None,
    ) -> None:
        """Put together; nothing is read yet.

        Args:
            step: The compiled step.
            open_batches: Starts the batches again.
            assembler: Of global batches.
            progress: Is given the results.
            every_steps: Evaluate after every so many steps.
            weights_of: Which weights of a state are evaluated.
            metrics: Names of the metrics that the step has.
            record: Is given the loss and them, with their step.
        """
        self.every_steps: int | None = every_steps
        self._step = step
        self._open = open_batches
        self._assembler = assembler
        self._progress = progress
        self._weights_of = weights_of
        self._metrics = metrics
        self._record = record

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Evaluates and tells; `get_flags` is what this process has to tell the others."""
        with self._progress.pause("evaluating"), self._open() as batches:
            of_all = (self._assembler.batch(local, _with_left(get_flags(), local)) for local in batches)
            found = evaluate(self._step, self._weights_of(state), of_all, self._progress.tick)
        if found is None:
            logger.info("Step %d: evaluation left, asked to stop", step)
        else:
            metrics = dict(zip(self._metrics, found.metrics, strict=True))
            self._record(step, {EVALUATION_LOSS: found.loss, **metrics})
            self._progress.evaluated(step, found.loss, metrics, tokens=found.tokens, seconds=found.seconds)


def _with_left(flags: StepFlags, local: LocalBatch) -> StepFlags:
    return dataclasses.replace(flags, batches_left=local.batches_left)


def evaluate(
    step: EvaluationStep, weights: Weights, batches: Iterable[Batch], tick: Callable[[], None] = lambda: None
) -> Evaluated | None:
    """The mean loss over all batches; None when a process was asked to stop meanwhile.

    It ends early where the batches say that the data does. `tick` is called for each one: a sign of progress.

    Raises:
        ConfigurationError: there is not one position that counts.
    """
    began = time.monotonic()
    values: list[list[float]] = []
    """Of the loss and each metric, the sums of rows."""
    tokens = 0
    pending: RowLosses | None = None

    def read(of: RowLosses) -> StepFlags:
        nonlocal tokens
        counts = np.asarray(of.tokens)
        sums = [np.asarray(each)[counts > 0].tolist() for each in (of.losses, *of.metrics)]
        values.extend([] for _ in sums[len(values) :])
        for all_rows, rows in zip(values, sums, strict=True):
            all_rows.extend(rows)
        tokens += int(counts.sum())
        return unpack(np.asarray(of.signals))

    for batch in batches:
        # The batch before is read while the devices work on this one.
        pending, before = step(weights, batch), pending
        tick()
        if before is not None:
            flags = read(before)
            if flags.stop:
                return None
            if flags.batches_left < 2:
                break  # `batch` is the last of the data, or empty already; all processes see it
    if pending is not None and read(pending).stop:
        return None
    if not tokens:
        raise ConfigurationError(
            "spec.trainer.evaluation.data.path: its first batches have no token to predict; give text, or leave it out"
        )
    # Rows are added exactly: the order of the batches' rows, and so the division over processes, has no part in it.
    loss, *metrics = (_exact_sum(rows) / tokens for rows in values)
    return Evaluated(loss, tuple(metrics), tokens, time.monotonic() - began)


def _exact_sum(values: list[float]) -> float:
    """Without rounding between the values; NaN where they are not finite together, for which `fsum` raises."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan
