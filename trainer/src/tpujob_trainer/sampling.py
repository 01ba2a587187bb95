"""Text written by the model. All processes compute it, for the weights lie on all of them; who wants it, keeps it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.config import BLOCK, SampleConfig
from tpujob_trainer.data import Tokenizer
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED


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

    Every token is computed from all before it in one pass of fixed shape: short texts after a training need no cache
    of keys and values. All devices compute the same.
    """
    length = len(prompt) + config.tokens
    begun = np.zeros((1, length), np.int32)
    begun[:, : len(prompt)] = prompt
    positions = np.arange(length, dtype=np.int32)[None]

    def write(weights: Weights) -> jax.Array:
        def one(at: jax.Array, tokens: jax.Array) -> jax.Array:
            hidden, output = model.hidden(weights, tokens, jnp.asarray(positions), jnp.ones_like(tokens))
            logits = (hidden[:, at - 1] @ output).astype(jnp.float32)
            if config.temperature == 0:
                chosen = jnp.argmax(logits, axis=-1)
            else:
                key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), at)  # compiles in no time
                chosen = jax.random.categorical(key, logits / config.temperature, axis=-1)
            return tokens.at[:, at].set(chosen.astype(jnp.int32))

        return jax.lax.fori_loop(len(prompt), length, one, jnp.asarray(begun))[0, len(prompt) :]

    return jax.jit(
        jax.shard_map(write, mesh=model.mesh, in_specs=(model.specs,), out_specs=REPLICATED, check_vma=False)
    )


def until_end(tokens: list[int], eos: int) -> list[int]:
    """The tokens before the end of the document; all of them where it does not end."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens
