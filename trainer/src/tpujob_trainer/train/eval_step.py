"""The loss of a batch without learning from it: a pure function of (weights, batch).

Each row's loss is a number of its own. The host adds the rows up exactly, so that the result does not depend on which
process held which row.
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
    """What a batch came to; whole on every process."""

    losses: jax.Array
    """float32 [B]: of each row, the sum over the positions that count."""
    metrics: tuple[jax.Array, ...]
    """The same of each metric of the user's own."""
    tokens: jax.Array
    """int32 [B]: of each row, the positions that count."""
    signals: jax.Array
    """int32 [4]: the greatest of each column over all rows."""


EvaluationStep = Callable[[Weights, Batch], RowLosses]


def make_evaluation_step(
    model: Model, *, parts: int = 1, loss: str | None = None, metrics: Sequence[str] = ()
) -> EvaluationStep:
    """The jitted function.

    Args:
        model: whose weights are evaluated.
        parts: a device computes its rows in so many parts, one after the other, as in training.
        loss: `module:name` of a function from logits and targets to losses; None: cross-entropy.
        metrics: `module:name` of functions of the same form.
    """
    evaluated = TokenLoss(model, custom=loss)
    own = [load_metric(number, name) for number, name in enumerate(metrics)]

    def of_rows(weights: Weights, batch: Batch) -> tuple[jax.Array, ...]:
        """Of the loss and each metric, `[B]`."""
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
