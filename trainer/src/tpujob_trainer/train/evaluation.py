"""The loss on evaluation text, at intervals between two steps; all processes compute it, with the same result.

Each row has a separate loss. The host adds the rows exactly, so that the result does not depend on which process held
which row.

The batches are the same each time. They carry stop requests, as those of training do: all processes leave an evaluation
at the same batch, and the loop stops in order.
"""

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from tpujob_trainer.config.rules import EVALUATION_LOSS
from tpujob_trainer.data import LocalBatch
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED, ROWS
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.save_policy import StepFlags, unpack
from tpujob_trainer.train.step import Batch, TrainState, in_parts
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.train.token_loss import TokenLoss, load_metric
from tpujob_trainer.values.errors import ConfigurationError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowLosses:
    """The losses of a batch, replicated on all processes."""

    losses: jax.Array
    """float32 [B]: the sum over the positions of each row that count."""
    metrics: tuple[jax.Array, ...]
    """The same for each user-defined metric."""
    tokens: jax.Array
    """int32 [B]: the number of positions of each row that count."""
    signals: jax.Array
    """int32 [5]: the maximum of each column over all rows."""


EvaluationStep = Callable[[Weights, Batch], RowLosses]


def make_evaluation_step(
    model: Model, *, parts: int = 1, loss: str | None = None, metrics: Sequence[str] = ()
) -> EvaluationStep:
    """The jitted evaluation step.

    Args:
        model: The model to evaluate.
        parts: Number of parts in which a device computes its rows, one after the other, as in training.
        loss: `module:name` of a function from logits and targets to losses; None: cross-entropy.
        metrics: `module:name` of functions with the same signature.
    """
    evaluated = TokenLoss(model, custom=loss)
    own = [load_metric(number, name) for number, name in enumerate(metrics)]

    def of_rows(weights: Weights, batch: Batch) -> tuple[jax.Array, ...]:
        """The sums of the loss and each metric, `[B]`."""
        return tuple(jnp.sum(values, axis=1) for values in evaluated.of_positions(weights, batch, own))

    def step(weights: Weights, batch: Batch) -> RowLosses:
        if parts == 1:
            losses, *found = of_rows(weights, batch)
        else:
            of_parts = jax.lax.map(lambda part: of_rows(weights, part), in_parts(batch, parts))
            losses, *found = (values.swapaxes(0, 1).ravel() for values in of_parts)
        return RowLosses(
            losses=losses,
            metrics=tuple(found),
            tokens=jnp.sum(batch.loss_mask, axis=1, dtype=jnp.int32),
            signals=jnp.max(batch.signals, axis=0),
        )

    jitted: EvaluationStep = jax.jit(
        step,
        in_shardings=(model.shardings, NamedSharding(model.mesh, ROWS)),
        out_shardings=NamedSharding(model.mesh, REPLICATED),
    )
    return jitted


logger = logging.getLogger(__name__)

OpenBatches = Callable[[], contextlib.AbstractContextManager[Iterator[LocalBatch]]]
"""Opens the evaluation's batches, from the first on."""


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation."""

    loss: float
    """Mean over all positions that count, in nats per token."""
    metrics: tuple[float, ...]
    """The mean of each user-defined metric, in their order."""
    tokens: int
    """Positions that counted."""
    seconds: float


class Evaluation:
    """Evaluates a state; a hook of the loop."""

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
        """Nothing is read yet.

        Args:
            step: The compiled step.
            open_batches: Opens the batches, from the first on.
            assembler: Of global batches.
            progress: Gets the results.
            every_steps: Steps between two evaluations.
            weights_of: Selects the weights of a state to evaluate.
            metrics: Names of the metrics that the step has.
            record: Gets the step, and loss and metrics by name.
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
        """Evaluates and reports the result; `get_flags` returns the flags of this process for the others."""
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
    """The mean loss over all batches; None: a process was asked to stop meanwhile.

    The evaluation ends early if the data ends. `tick` is called for each batch, as a sign of progress.

    Raises:
        ConfigurationError: no position counts.
    """
    began = time.monotonic()
    values: list[list[float]] = []
    """For the loss and each metric, the sums of the rows."""
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
        # The previous batch is read while the devices work on this one.
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
        raise no_tokens()
    # Rows are added exactly: their order, and so the division over processes, does not change the result.
    loss, *metrics = (_exact_sum(rows) / tokens for rows in values)
    return Evaluated(loss, tuple(metrics), tokens, time.monotonic() - began)


def no_tokens() -> ConfigurationError:
    """The error about batches in which no position counts."""
    return ConfigurationError(
        "spec.trainer.evaluation.data.path: its first batches have no token to predict; give text, in the column that "
        "textColumn or a field instead of it names, or leave it out"
    )


def _exact_sum(values: list[float]) -> float:
    """The sum, rounded once; NaN if it is not finite in a way for which `fsum` raises."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan
