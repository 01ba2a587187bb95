"""The model up to the last layer that is kept. No later layer is computed."""

from __future__ import annotations

import jax

from tpujob_trainer.corpus.extract.config import Positions, ValueType
from tpujob_trainer.corpus.extract.layers import Site, column_of, passes
from tpujob_trainer.corpus.extract.program import Outputs, Program
from tpujob_trainer.corpus.extract.sequences import Sequences
from tpujob_trainer.corpus.extract.values import keep
from tpujob_trainer.model.decoder import Model, Weights


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
