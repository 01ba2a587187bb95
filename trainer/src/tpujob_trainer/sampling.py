"""Text written by the model. All processes compute it, for the weights lie on all of them; who wants it, keeps it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.config import BLOCK, SampleConfig
from tpujob_trainer.data import Tokenizer
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.partitioning import REPLICATED, over_rows


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


def generate(
    model: Model, weights: Weights, *, prompt: list[int], config: SampleConfig, seed: int, eos: int, mesh: Mesh
) -> list[int]:
    """The tokens that follow the prompt, up to the end of the document; the same on every process.

    Every token is computed from all before it in one pass of fixed shape: short texts after a training need no cache
    of keys and values. Each device writes a text of its own, as each holds a row of a batch; the first is returned.
    """
    length = len(prompt) + config.tokens
    begun = np.zeros((mesh.size, length), np.int32)
    begun[:, : len(prompt)] = prompt
    positions = np.tile(np.arange(length, dtype=np.int32), (mesh.size, 1))

    def write(weights: Weights) -> jax.Array:
        decoder = model.bind(weights)

        def one(at: jax.Array, tokens: jax.Array) -> jax.Array:
            hidden = decoder(tokens, jnp.asarray(positions), jnp.ones_like(tokens))
            logits = (hidden[:, at - 1] @ decoder.output_weights()).astype(jnp.float32)
            if config.temperature == 0:
                chosen = jnp.argmax(logits, axis=-1)
            else:
                key = jax.random.fold_in(jax.random.key(seed), at)
                chosen = jax.random.categorical(key, logits / config.temperature, axis=-1)
            return over_rows(tokens.at[:, at].set(chosen.astype(jnp.int32)))

        return jax.lax.fori_loop(len(prompt), length, one, over_rows(jnp.asarray(begun)))

    with jax.set_mesh(mesh):
        written = jax.jit(write, out_shardings=NamedSharding(mesh, REPLICATED))(weights)
    text = np.asarray(written)[0, len(prompt) :].tolist()
    return text[: text.index(eos)] if eos in text else text
