"""The model up to the last layer that is kept, compiled once for each shape of batch.

Rows are divided over the devices; no layer behind the last kept one is computed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from tpujob_trainer.extract.config import Positions, ValueType
from tpujob_trainer.extract.layers import Site, column_of, passes
from tpujob_trainer.extract.values import Kept, keep
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import ROWS

Outputs = dict[str, Kept]
"""By column."""


class Forward:
    """The function (tokens, lengths) → kept values of each site."""

    def __init__(
        self, model: Model, weights: Weights, sites: tuple[Site, ...], *, positions: Positions, dtype: ValueType
    ) -> None:
        """Compiles nothing yet.

        Args:
            model: the architecture, on its mesh.
            weights: its arrays.
            sites: what is kept.
            positions: at which tokens.
            dtype: of the values.
        """
        self._weights = weights
        self._rows = NamedSharding(model.mesh, ROWS)
        self._compiled: dict[tuple[int, int], Any] = {}
        self.devices = model.mesh.size

        def outputs(weights: Weights, tokens: jax.Array, lengths: jax.Array) -> Outputs:
            found = activations(model, weights, tokens, sites)
            kept = {
                column_of(site, model.shape.layers): keep(x, lengths, positions=positions, dtype=dtype)
                for site, x in found.items()
            }
            return {column: self._placed(each) for column, each in kept.items()}

        self._jitted = jax.jit(outputs, in_shardings=(model.shardings, self._rows, self._rows))

    def _placed(self, kept: Kept) -> Kept:
        """Rows where they were computed, the sums as the only entry of a list."""
        rows = {name: jax.lax.with_sharding_constraint(x, self._rows) for name, x in kept.items() if name != "sums"}
        return rows | {"sums": kept["sums"][None]}

    def compiled(self, rows: int, length: int) -> Any:
        """The function for one shape; `rows` is a multiple of the devices."""
        if (rows, length) not in self._compiled:
            tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=self._rows)
            lengths = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=self._rows)
            self._compiled[rows, length] = self._jitted.lower(self._weights, tokens, lengths).compile()
        return self._compiled[rows, length]

    def __call__(self, tokens: np.ndarray, lengths: np.ndarray) -> Outputs:
        """The kept values of int32 `[B, S]` tokens, on the devices; they may still be computing."""
        run = self.compiled(*tokens.shape)
        outputs: Outputs = run(self._weights, jax.device_put(tokens, self._rows), jax.device_put(lengths, self._rows))
        return outputs


def activations(model: Model, weights: Weights, tokens: jax.Array, sites: tuple[Site, ...]) -> dict[Site, jax.Array]:
    """The values `[B, S, D]` at each site, in the type of computation."""
    rows, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), (rows, length))
    kinds = sorted({site.kind for site in sites})
    stretches = passes(sites, model.shape.layers)
    trace = model.trace(
        weights,
        tokens,
        positions,
        jnp.zeros((rows, length), jnp.int32),
        [(each.first, each.end, kinds if each.keeps else ()) for each in stretches],
    )
    found = {Site(-1): trace.embedding, Site(model.shape.layers): trace.norm}
    for each, outputs in zip(stretches, trace.outputs, strict=True):
        for site in sites:
            if each.first <= site.layer < each.end:
                found[site] = outputs[site.kind][site.layer - each.first]
    return {site: found[site] for site in sites}
