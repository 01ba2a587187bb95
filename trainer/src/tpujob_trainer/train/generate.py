"""Text written by the model. All processes compute it, for the weights lie on all of them; who wants it, keeps it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.config.schema import BLOCK, SampleConfig
from tpujob_trainer.data import Tokenizer
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.layers import Past
from tpujob_trainer.model.partitioning import REPLICATED

GATHERED_ONCE_BYTES = 2**28
"""Weights that take no more are gathered once for a text, larger ones layer by layer for each token: of these a device
may have no room for the whole."""


def prompt_tokens(config: SampleConfig, tokenizer: Tokenizer, *, sequence_length: int) -> list[int]:
    """The prompt as tokens, begun as a document is.

    Raises:
        ConfigurationError: prompt and text together are longer than what the model is trained on.
    """
    (tokens,) = tokenizer.encode([config.prompt])
    if tokenizer.bos is not None:
        tokens = [tokenizer.bos, *tokens]
    if not tokens:
        raise ConfigurationError(f"{BLOCK}.sample.prompt: makes no token; write a text")
    if len(tokens) + config.tokens > sequence_length:
        raise ConfigurationError(
            f"{BLOCK}.sample.tokens: {config.tokens} and the prompt's {len(tokens)} are more than sequenceLength "
            f"({sequence_length}); {max(sequence_length - len(tokens), 0)} would fit"
        )
    return tokens


def make_sampler(model: Model, *, prompt: list[int], config: SampleConfig, seed: int) -> Callable[[Weights], jax.Array]:
    """The jitted function from weights to the tokens that follow the prompt, int32 `[tokens]`, whole everywhere.

    One token after the other goes through the model, those of the prompt, too, and leaves what later ones see of it.
    All devices compute the same.
    """
    length = len(prompt) + config.tokens
    begun = np.zeros((1, length), np.int32)
    begun[:, : len(prompt)] = prompt
    are_whole = model.whole_bytes <= GATHERED_ONCE_BYTES

    def write(weights: Weights) -> jax.Array:
        if are_whole:
            weights = model.whole(weights)

        def one(at: jax.Array, state: tuple[jax.Array, Past]) -> tuple[jax.Array, Past]:
            tokens, past = state
            logits, past = model.next(weights, tokens[:, at], at, past, are_whole=are_whole)
            if config.temperature == 0:
                chosen = jnp.argmax(logits, axis=-1)
            else:
                key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), at + 1)  # compiles in no time
                chosen = jax.random.categorical(key, logits / config.temperature, axis=-1)
            following = jnp.where(at + 1 < len(prompt), tokens[:, at + 1], chosen.astype(jnp.int32))
            return tokens.at[:, at + 1].set(following), past

        tokens, _ = jax.lax.fori_loop(0, length - 1, one, (jnp.asarray(begun), model.no_past(1, length)))
        return tokens[0, len(prompt) :]

    return jax.jit(
        jax.shard_map(write, mesh=model.mesh, in_specs=(model.specs,), out_specs=REPLICATED, check_vma=False)
    )


def until_end(tokens: list[int], eos: int) -> list[int]:
    """The tokens before the end of the document; all of them where it does not end."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens
