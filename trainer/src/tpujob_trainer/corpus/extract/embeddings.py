"""One vector for each row: a layer's values at the last token, or their mean."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp

from tpujob_trainer.corpus.extract.config import ValueType
from tpujob_trainer.corpus.extract.forward import activations
from tpujob_trainer.corpus.extract.layers import Site
from tpujob_trainer.corpus.extract.program import Outputs, Program
from tpujob_trainer.corpus.extract.sequences import Sequences
from tpujob_trainer.corpus.extract.values import at_positions, typed_with_sums
from tpujob_trainer.model.decoder import Model, Weights

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
