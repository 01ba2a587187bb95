"""Text generation by the model. All processes compute it, because the weights are divided over all of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from tpujob_trainer.config.schema import BLOCK, SampleConfig
from tpujob_trainer.data import DataConfig, Tokenizer
from tpujob_trainer.data.stream.rows import with_remedy
from tpujob_trainer.data.text.columns import ConversationError
from tpujob_trainer.model.decoder import Model, Pasts, Weights
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.values.errors import ConfigurationError

GATHERED_ONCE_BYTES = 2**28
"""Weights of at most this size are gathered once for a text. Larger ones stay sharded, and activations are exchanged
for each token."""


class Prompt(NamedTuple):
    """The beginning of a sample."""

    text: str
    tokens: list[int]


def prompts_of(config: SampleConfig, tokenizer: Tokenizer, data: DataConfig, *, sequence_length: int) -> list[Prompt]:
    """The prompts for the model: each the beginning of a document, or a user's turn in the chat template.

    Raises:
        ConfigurationError: a prompt has no tokens, prompt and text are longer than `sequence_length`, or there is no
            chat template for a conversation.
    """
    if _is_chat(config, data):
        texts = _conversations(config, tokenizer, data)
        prompts = [Prompt(*each) for each in zip(texts, tokenizer.encode(texts), strict=True)]
    else:
        before = [] if tokenizer.bos is None else [tokenizer.bos]
        given = config.all_prompts
        prompts = [Prompt(text, [*before, *ids]) for text, ids in zip(given, tokenizer.encode(given), strict=True)]
    for number, (_, tokens) in enumerate(prompts):
        which = "prompt" if config.prompts is None else f"prompts[{number}]"
        if not tokens:
            raise ConfigurationError(f"{BLOCK}.sample.{which}: makes no token; write a text")
        if len(tokens) + config.tokens > sequence_length:
            raise ConfigurationError(
                f"{BLOCK}.sample.tokens: {config.tokens} and the {which}'s {len(tokens)} are more than sequenceLength "
                f"({sequence_length}); {max(sequence_length - len(tokens), 0)} would fit"
            )
    return prompts


def _is_chat(config: SampleConfig, data: DataConfig) -> bool:
    if config.chat is None:
        return all(source.makes_conversations for _, source in data.sources())
    return config.chat


def _conversations(config: SampleConfig, tokenizer: Tokenizer, data: DataConfig) -> list[str]:
    chat = tokenizer.chat_template
    if chat is None:
        raise ConfigurationError(
            f"{BLOCK}.sample.chat: the tokenizer has no chat template; name one that has as {BLOCK}.data.tokenizer, or "
            "write chat: false"
        )
    source = next((source for _, source in data.sources() if source.makes_conversations), None)
    if source is not None:
        chat = chat.called(source.column().chat)
    system = [] if config.system is None else [{"role": "system", "content": config.system}]
    try:
        return [chat.prompt([*system, {"role": "user", "content": prompt}]) for prompt in config.all_prompts]
    except ConversationError as error:
        raise ConfigurationError(f"{BLOCK}.sample: {with_remedy(error.cause or str(error))}") from error


Sampler = Callable[[Weights, np.ndarray, np.ndarray], jax.Array]
"""From weights, a prompt and its length to the tokens that follow."""


def padded(prompt: Sequence[int], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """A prompt for a sampler: int32 `[longest]`, padded with masked tokens, and its length, int32."""
    return np.array([*prompt, *[0] * (longest - len(prompt))], np.int32), np.array(len(prompt), np.int32)


def make_sampler(model: Model, *, longest: int, config: SampleConfig, seed: int) -> Sampler:
    """The jitted function from weights and a prompt to the tokens that follow it, int32 `[tokens]`, replicated.

    The model first computes the whole prompt, then one token after the other, with a cache of the earlier ones. All
    devices compute the same. One compilation serves all prompts of up to `longest` tokens (`padded`).
    """

    def chosen(logits: jax.Array, at: jax.Array | int) -> jax.Array:
        """The token at a position, from the logits of the one before."""
        if config.temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), at)  # compiles in no time
        return jax.random.categorical(key, logits / config.temperature, axis=-1).astype(jnp.int32)

    def write(weights: Weights, prompt: jax.Array, length: jax.Array) -> jax.Array:
        if model.whole_bytes <= GATHERED_ONCE_BYTES:
            weights = model.whole(weights)
        _, past = model.prefill(weights, prompt[None], longest + config.tokens)

        def one(carry: tuple[jax.Array, Pasts], at: jax.Array) -> tuple[tuple[jax.Array, Pasts], jax.Array]:
            token, past = carry
            logits, past = model.next(weights, token, at, past)
            following = chosen(logits, at + 1)
            return (following, past), following

        # The first is the prompt's last token again, which leaves the cache unchanged and gives the logits after it.
        last = length - 1
        _, written = jax.lax.scan(one, (prompt[None, last], past), last + jnp.arange(config.tokens))
        return written[:, 0]

    everywhere = NamedSharding(model.mesh, REPLICATED)
    return jax.jit(write, in_shardings=(model.shardings, everywhere, everywhere), out_shardings=everywhere)


def until_end(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """The tokens before the first one of `ends`; all of them if there is none."""
    return tokens[: next((at for at, token in enumerate(tokens) if token in ends), len(tokens))]
