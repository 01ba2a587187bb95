"""The evaluation step: the loss of a batch, as a pure function of (weights, batch).

Each row has a separate loss. The host adds the rows exactly, so that the result does not depend on which process held
which row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED, ROWS
from tpujob_trainer.train.step import Batch, in_parts
from tpujob_trainer.train.token_loss import TokenLoss, load_metric


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
