"""The loss of a batch without learning from it: a pure function of (weights, batch).

Each row's loss is a number of its own, computed by one device. The host adds the rows up exactly, so that the result
does not depend on which process held which row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.loss import cross_entropy, num_chunks
from tpujob_trainer.model.partitioning import DATA, FSDP, REPLICATED, ROWS
from tpujob_trainer.train.step import Batch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowLosses:
    """What a batch came to; whole on every process."""

    losses: jax.Array
    """float32 [B]: of each row, the sum over the positions that count."""
    tokens: jax.Array
    """int32 [B]: of each row, the positions that count."""
    signals: jax.Array
    """int32 [4]: the greatest of each column over all rows."""


EvaluationStep = Callable[[Weights, Batch], RowLosses]


def make_evaluation_step(model: Model, *, parts: int = 1) -> EvaluationStep:
    """The jitted function.

    Args:
        model: whose weights are evaluated.
        parts: a device computes its rows in so many parts, one after the other, as in training.
    """

    def of_rows(weights: Weights, batch: Batch) -> jax.Array:
        hidden, output = model.hidden(weights, batch.inputs, batch.positions, batch.segment_ids)
        rows, length = batch.inputs.shape
        chunks = num_chunks(rows, length, model.shape.vocab_size)

        def one(hidden: jax.Array, targets: jax.Array, mask: jax.Array) -> jax.Array:
            return cross_entropy(hidden[None], output, targets[None], mask[None], chunks=chunks)

        return jax.vmap(one)(hidden, batch.targets, batch.loss_mask)

    def on_device(weights: Weights, batch: Batch) -> RowLosses:
        if parts == 1:
            losses = of_rows(weights, batch)
        else:
            split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
            losses = jax.lax.map(lambda part: of_rows(weights, part), split).ravel()
        tokens = jnp.sum(batch.loss_mask, axis=1, dtype=jnp.int32)
        return RowLosses(
            losses=jax.lax.all_gather(losses, (DATA, FSDP), tiled=True),
            tokens=jax.lax.all_gather(tokens, (DATA, FSDP), tiled=True),
            signals=jax.lax.pmax(jnp.max(batch.signals, axis=0), (DATA, FSDP)),
        )

    sharded = jax.shard_map(
        on_device, mesh=model.mesh, in_specs=(model.specs, ROWS), out_specs=REPLICATED, check_vma=False
    )
    step: EvaluationStep = jax.jit(sharded)
    return step
