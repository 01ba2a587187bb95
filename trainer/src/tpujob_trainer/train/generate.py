"""Text written by the model. All processes compute it, for the weights lie on all of them; who wants it, keeps it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from tpujob_trainer.config.schema import BLOCK, SampleConfig
from tpujob_trainer.data import Tokenizer
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.layers import Past
from tpujob_trainer.model.partitioning import REPLICATED

GATHERED_ONCE_BYTES = 2**28
"""Weights that take no more are gathered once for a text. Larger ones stay where they are, and for each token it is
activations that travel."""


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

    The prompt goes through the model at once, then one token after the other, and each leaves what later ones see of
    it. All devices compute the same.
    """
    length = len(prompt) + config.tokens

    def chosen(logits: jax.Array, at: jax.Array | int) -> jax.Array:
        """The token at a position, from the logits before it."""
        if config.temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), at)  # compiles in no time
        return jax.random.categorical(key, logits / config.temperature, axis=-1).astype(jnp.int32)

    def write(weights: Weights) -> jax.Array:
        if model.whole_bytes <= GATHERED_ONCE_BYTES:
            weights = model.whole(weights)
        logits, past = model.prefill(weights, jnp.asarray([prompt], jnp.int32), length)
        first = chosen(logits, len(prompt))

        def one(carry: tuple[jax.Array, Past], at: jax.Array) -> tuple[tuple[jax.Array, Past], jax.Array]:
            token, past = carry
            logits, past = model.next(weights, token, at, past)
            following = chosen(logits, at + 1)
            return (following, past), following

        _, rest = jax.lax.scan(one, (first, past), jnp.arange(len(prompt), length - 1))
        return jnp.concatenate([first, rest[:, 0]])

    return jax.jit(write, in_shardings=(model.shardings,), out_shardings=NamedSharding(model.mesh, REPLICATED))


def until_end(tokens: list[int], eos: int) -> list[int]:
    """The tokens before the end of the document; all of them where it does not end."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens
