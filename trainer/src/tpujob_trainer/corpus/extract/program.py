"""What a task computes of a batch of rows: a function of the weights, compiled once for each shape of batch.

Rows are divided over the devices of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from tpujob_trainer.corpus.extract.values import Kept
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import ROWS

Outputs = dict[str, Kept]
"""By column."""

Function = Callable[[Weights, jax.Array, jax.Array, jax.Array], Outputs]
"""(weights, tokens int32 `[B, S]`, lengths int32 `[B]`, samples int32 `[B]`) → columns, each of B rows."""


class Program:
    """A function of batches."""

    def __init__(
        self, model: Model, weights: Weights, function: Function, *, per_token: frozenset[str] = frozenset()
    ) -> None:
        """Compiles nothing yet.

        Args:
            model: the architecture, on its mesh.
            weights: its arrays.
            function: of a batch.
            per_token: columns that have a value for each token; the others have one for each row.
        """
        self._weights = weights
        self._rows = NamedSharding(model.mesh, ROWS)
        self._compiled: dict[tuple[int, int], Any] = {}
        self.devices = model.mesh.size
        self.per_token = per_token

        def outputs(weights: Weights, tokens: jax.Array, lengths: jax.Array, samples: jax.Array) -> Outputs:
            found = function(weights, tokens, lengths, samples)
            return {column: self._placed(kept) for column, kept in found.items()}

        self._jitted = jax.jit(outputs, in_shardings=(model.shardings, self._rows, self._rows, self._rows))

    def _placed(self, kept: Kept) -> Kept:
        """Rows where they were computed, the sums as the only entry of a list."""
        placed = {name: jax.lax.with_sharding_constraint(x, self._rows) for name, x in kept.items() if name != "sums"}
        return placed | {"sums": kept["sums"][None]} if "sums" in kept else placed

    def compiled(self, rows: int, length: int) -> Any:
        """The function for one shape; `rows` is a multiple of the devices."""
        if (rows, length) not in self._compiled:
            tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=self._rows)
            number = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=self._rows)
            self._compiled[rows, length] = self._jitted.lower(self._weights, tokens, number, number).compile()
        return self._compiled[rows, length]

    def __call__(self, tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray | None = None) -> Outputs:
        """The columns of a batch, on the devices; they may still be computing.

        Args:
            tokens: int32 `[B, S]`.
            lengths: int32 `[B]`; 0 for a row of padding.
            samples: int32 `[B]`, numbers of the rows in the corpus; None: zeros.
        """
        run = self.compiled(*tokens.shape)
        given = [tokens, lengths, np.zeros_like(lengths) if samples is None else samples]
        outputs: Outputs = run(self._weights, *(jax.device_put(each, self._rows) for each in given))
        return outputs
