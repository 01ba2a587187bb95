"""The loss of rows: how well the model predicts each token from those before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tpujob_trainer.corpus.extract.program import Outputs, Program
from tpujob_trainer.corpus.extract.sequences import Sequences
from tpujob_trainer.corpus.extract.values import sums_of
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.loss import token_losses

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
