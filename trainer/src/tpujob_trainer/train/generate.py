"""Text written by the model. All processes compute it, for the weights lie on all of them; who wants it, keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
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


def prompt_tokens(config: SampleConfig, tokenizer: Tokenizer, *, sequence_length: int) -> list[list[int]]:
    """Each prompt as tokens, started as a document is.

    Raises:
        ConfigurationError: prompt and text together are longer than what the model is trained on.
    """
    before = [] if tokenizer.bos is None else [tokenizer.bos]
    prompts = [[*before, *tokens] for tokens in tokenizer.encode(config.all_prompts)]
    for number, tokens in enumerate(prompts):
        which = "prompt" if config.prompts is None else f"prompts[{number}]"
        if not tokens:
            raise ConfigurationError(f"{BLOCK}.sample.{which}: makes no token; write a text")
        if len(tokens) + config.tokens > sequence_length:
            raise ConfigurationError(
                f"{BLOCK}.sample.tokens: {config.tokens} and the {which}'s {len(tokens)} are more than sequenceLength "
                f"({sequence_length}); {max(sequence_length - len(tokens), 0)} would fit"
            )
    return prompts


Sampler = Callable[[Weights, np.ndarray, np.ndarray], jax.Array]
"""From weights, a prompt and its length to the tokens that follow."""


def padded(prompt: Sequence[int], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """A prompt as a sampler takes it: int32 `[longest]`, padded with masked tokens, and its length, int32."""
    return np.array([*prompt, *[0] * (longest - len(prompt))], np.int32), np.array(len(prompt), np.int32)


def make_sampler(model: Model, *, longest: int, config: SampleConfig, seed: int) -> Sampler:
    """The jitted function from weights and a prompt to the tokens that follow it, int32 `[tokens]`, whole everywhere.

    The prompt goes through the model at once, then one token after the other, and each leaves what later ones see of
    it. All devices compute the same. One compilation is for all prompts of up to `longest` tokens (`padded`).
    """

    def chosen(logits: jax.Array, at: jax.Array | int) -> jax.Array:
        """The token at a position, from the logits before it."""
        if config.temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), at)  # compiles in no time
        return jax.random.categorical(key, logits / config.temperature, axis=-1).astype(jnp.int32)

    def write(weights: Weights, prompt: jax.Array, length: jax.Array) -> jax.Array:
        if model.whole_bytes <= GATHERED_ONCE_BYTES:
            weights = model.whole(weights)
        _, past = model.prefill(weights, prompt[None], longest + config.tokens)

        def one(carry: tuple[jax.Array, Past], at: jax.Array) -> tuple[tuple[jax.Array, Past], jax.Array]:
            token, past = carry
            logits, past = model.next(weights, token, at, past)
            following = chosen(logits, at + 1)
            return (following, past), following

        # The first is the prompt's last token again, which leaves the same past, and the logits behind it.
        last = length - 1
        _, written = jax.lax.scan(one, (prompt[None, last], past), last + jnp.arange(config.tokens))
        return written[:, 0]

    everywhere = NamedSharding(model.mesh, REPLICATED)
    return jax.jit(write, in_shardings=(model.shardings, everywhere, everywhere), out_shardings=everywhere)


def until_end(tokens: list[int], eos: int) -> list[int]:
    """The tokens before the end of the document; all of them where it does not end."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens
