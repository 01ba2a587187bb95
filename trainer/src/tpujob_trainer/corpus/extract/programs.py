"""What the tasks compute from the weights and a batch of sequences, compiled once for each batch shape.

Sequences are sharded over the devices of the host.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from tpujob_trainer.corpus.extract.batches import most_rows
from tpujob_trainer.corpus.extract.config import Positions, ValueType
from tpujob_trainer.corpus.extract.layers import Site, column_of, passes
from tpujob_trainer.corpus.extract.sequences import Kept, Sequences, at_positions, keep, sums_of, typed_with_sums
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.loss import token_losses
from tpujob_trainer.model.partitioning import ROWS

Outputs = dict[str, Kept]
"""By column."""

Function = Callable[[Weights, Sequences], Outputs]
"""The columns, each `[B, S, ...]` for a value of each token, or `[B, M, ...]` for one of each row."""


class Program:
    """A compiled function of batches."""

    def __init__(
        self,
        model: Model,
        weights: Weights,
        function: Function,
        *,
        per_token: frozenset[str] = frozenset(),
        is_packed: bool = True,
    ) -> None:
        """Compiles nothing yet.

        Args:
            model: the architecture, on its mesh.
            weights: its arrays.
            function: of a batch.
            per_token: columns that have a value for each token; the others have one for each row.
            is_packed: whether a sequence may hold several rows.
        """
        self._weights = weights
        self._rows = NamedSharding(model.mesh, ROWS)
        self._compiled: dict[tuple[int, int, int], Any] = {}
        self.devices = model.mesh.size
        self.per_token = per_token
        self.is_packed = is_packed

        def outputs(weights: Weights, sequences: Sequences) -> Outputs:
            found = function(weights, sequences)
            return {column: self._placed(kept) for column, kept in found.items()}

        self._jitted = jax.jit(outputs, in_shardings=(model.shardings, self._rows))

    def _placed(self, kept: Kept) -> Kept:
        """The values, sharded by rows, and the sums with a leading axis of size 1."""
        placed = {name: jax.lax.with_sharding_constraint(x, self._rows) for name, x in kept.items() if name != "sums"}
        return placed | {"sums": kept["sums"][None]} if "sums" in kept else placed

    def most_rows(self, length: int) -> int:
        """The most rows that a sequence of `length` tokens may hold: M."""
        return most_rows(length) if self.is_packed else 1

    def compiled(self, size: int, length: int) -> Any:
        """The function for one shape; `size` is a multiple of the devices."""
        return self._of_shape(size, length, self.most_rows(length))

    def _of_shape(self, size: int, length: int, most: int) -> Any:
        if (size, length, most) not in self._compiled:
            tokens = jax.ShapeDtypeStruct((size, length), jnp.int32, sharding=self._rows)
            number = jax.ShapeDtypeStruct((size, most), jnp.int32, sharding=self._rows)
            lowered = self._jitted.lower(self._weights, Sequences(tokens, number, number, number))
            self._compiled[size, length, most] = lowered.compile()
        return self._compiled[size, length, most]

    def __call__(self, sequences: Sequences) -> Outputs:
        """The columns of a batch, on the devices; they may still be computing."""
        (size, length), most = sequences.tokens.shape, sequences.lengths.shape[1]
        run = self._of_shape(size, length, most)
        outputs: Outputs = run(self._weights, jax.device_put(sequences, self._rows))
        return outputs


def activations_program(
    model: Model, weights: Weights, sites: tuple[Site, ...], *, positions: Positions, dtype: ValueType
) -> Program:
    """The program that keeps the values of each site, each in its own column.

    Args:
        model: the architecture, on its mesh.
        weights: its arrays.
        sites: what is kept.
        positions: at which tokens.
        dtype: of the values.
    """
    columns = {site: column_of(site, model.shape.layers) for site in sites}

    def outputs(weights: Weights, sequences: Sequences) -> Outputs:
        found = activations(model, weights, sequences, sites)
        return {columns[site]: keep(x, sequences, positions=positions, dtype=dtype) for site, x in found.items()}

    return Program(model, weights, outputs, per_token=frozenset(columns.values() if positions == "all" else ()))


def activations(model: Model, weights: Weights, sequences: Sequences, sites: tuple[Site, ...]) -> dict[Site, jax.Array]:
    """The values `[B, S, D]` at each site, in the type of computation."""
    kinds = sorted({site.kind for site in sites})
    stretches = passes(sites, model.shape.layers)
    trace = model.trace(
        weights,
        sequences.tokens,
        sequences.positions,
        sequences.segments,
        [(each.first, each.end, kinds if each.keeps else ()) for each in stretches],
    )
    found = {Site(-1): trace.embedding, Site(model.shape.layers): trace.norm}
    for each, outputs in zip(stretches, trace.outputs, strict=True):
        for site in sites:
            if each.first <= site.layer < each.end:
                found[site] = outputs[site.kind][site.layer - each.first]
    return {site: found[site] for site in sites}


COLUMN = "embedding"
LEAST_NORM = 1e-12
"""Vectors shorter than this are divided by it, and not scaled to length 1."""


def embeddings_program(
    model: Model, weights: Weights, site: Site, *, positions: Literal["last", "mean"], normalize: bool, dtype: ValueType
) -> Program:
    """The program whose column `embedding` has a vector `[D]` for each row."""

    def outputs(weights: Weights, sequences: Sequences) -> Outputs:
        found = activations(model, weights, sequences, (site,))[site]
        x = at_positions(found, sequences, positions).astype(jnp.float32)
        if normalize:
            x = x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), LEAST_NORM)
        return {COLUMN: typed_with_sums(x, sequences.is_row, dtype)}

    return Program(model, weights, outputs)


LOSS, PERPLEXITY, SCORED, TOKEN_LOSSES = "loss", "perplexity", "scored_tokens", "token_losses"


def scores_program(model: Model, weights: Weights, *, per_token: bool) -> Program:
    """The program that computes the loss of each row.

    Columns: `loss`, float32, the mean of -log p(token | tokens before it) in nats over all tokens except the first, NaN
    for a row of one token; `perplexity`, exp(loss); `scored_tokens`, int32. With `per_token` also `token_losses`,
    float32 for each token, NaN for the first.
    """

    def outputs(weights: Weights, sequences: Sequences) -> Outputs:
        losses = _losses(model, weights, sequences)
        count = jnp.maximum(sequences.lengths - 1, 0)
        mean = jnp.where(count > 0, sequences.total(losses) / jnp.maximum(count, 1), jnp.nan)
        found: Outputs = {
            LOSS: {"values": mean, "sums": sums_of(mean[..., None], count > 0)},
            PERPLEXITY: {"values": jnp.exp(mean)},
            SCORED: {"values": count},
        }
        if per_token:
            # The loss at position i is that of token i + 1.
            before = jnp.roll(losses, 1, axis=1)
            found[TOKEN_LOSSES] = {"values": jnp.where(sequences.positions == 0, jnp.nan, before)}
        return found

    return Program(model, weights, outputs, per_token=frozenset([TOKEN_LOSSES] if per_token else ()))


def _losses(model: Model, weights: Weights, sequences: Sequences) -> jax.Array:
    """-log p of the token after each position, float32 `[B, S]`; 0 if no token of the same row follows."""
    tokens = sequences.tokens
    hidden, output = model.hidden(weights, tokens, sequences.positions, sequences.segments)
    targets, is_scored = jnp.roll(tokens, -1, axis=1), sequences.left > 1
    return token_losses(hidden, output, targets, is_scored, model.mesh, model.shape.logit_softcap)
