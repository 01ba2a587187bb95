"""What a task computes from the weights and a batch of sequences, compiled once for each batch shape.

Sequences are sharded over the devices of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from tpujob_trainer.corpus.extract.batches import most_rows
from tpujob_trainer.corpus.extract.sequences import Sequences
from tpujob_trainer.corpus.extract.values import Kept
from tpujob_trainer.model.decoder import Model, Weights
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
