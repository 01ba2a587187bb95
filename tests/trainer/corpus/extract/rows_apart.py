"""Sequences of one row each."""

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.corpus.extract.sequences import Sequences


def one_to_a_sequence(
    tokens: np.ndarray | jax.Array, lengths: np.ndarray | jax.Array, samples: np.ndarray | jax.Array | None = None
) -> Sequences:
    """The sequences of rows that each have their own.

    Args:
        tokens: int32 `[B, S]`.
        lengths: int32 `[B]`; 0 for an empty sequence.
        samples: int32 `[B]`; None: zeros.
    """
    numbers = jnp.zeros_like(lengths) if samples is None else jnp.asarray(samples)
    starts = jnp.where(jnp.asarray(lengths) > 0, 0, tokens.shape[1]).astype(jnp.int32)
    return Sequences(jnp.asarray(tokens), starts[:, None], jnp.asarray(lengths)[:, None], numbers[:, None])
