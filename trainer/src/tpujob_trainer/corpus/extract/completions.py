"""Continuations of rows: processes the prompts of a batch at once, then generates token by token for all rows.

- Prompts have different lengths: each row continues at its own end.
- A row's text depends on its tokens, its sample number and the seed, but not on the other rows of its batch.
- A batch ends when every row has ended, or has the maximum number of tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from tpujob_trainer.corpus.extract.programs import Outputs, Program
from tpujob_trainer.corpus.extract.sequences import Sequences
from tpujob_trainer.data.text.stop_strings import before_any, tokens_until_stop
from tpujob_trainer.model.decoder import Model, Pasts, Weights

TOKENS, LENGTH, TEXT, FINISHED = "completion_tokens", "completion_length", "completion", "finished"


def completions_program(
    model: Model, weights: Weights, *, tokens: int, temperature: float, seed: int, ends: Sequence[int]
) -> Program:
    """The program that generates up to `tokens` tokens after each row.

    Columns: `completion_tokens`, int32 `[tokens]`, padded with the first of `ends`; `completion_length`, int32, without
    the token that ends the text.

    Args:
        model: the architecture, on its mesh.
        weights: its arrays.
        tokens: maximum length of a continuation.
        temperature: 0 takes the likeliest token each time.
        seed: of the sampling.
        ends: each of these tokens ends a text.
    """
    next_of_rows = jax.vmap(_next_of_row(model), in_axes=(None, 0, 0, 1), out_axes=(0, 1))

    def chosen(logits: jax.Array, samples: jax.Array, at: jax.Array) -> jax.Array:
        if temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)

        def of_row(logits: jax.Array, sample: jax.Array) -> jax.Array:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), sample), at)
            return jax.random.categorical(key, logits / temperature).astype(jnp.int32)

        return jax.vmap(of_row)(logits, samples)

    def is_end(tokens: jax.Array) -> jax.Array:
        return jnp.isin(tokens, jnp.array(ends, jnp.int32))

    def outputs(weights: Weights, sequences: Sequences) -> Outputs:
        prompts, lengths, samples = sequences.tokens, sequences.lengths[:, 0], sequences.samples[:, 0]
        rows, longest = prompts.shape
        _, past = model.prefill(weights, prompts, longest + tokens)
        places = jnp.maximum(lengths - 1, 0)
        last = jnp.take_along_axis(prompts, places[:, None], axis=1)[:, 0]

        def goes_on(carry: tuple[jax.Array, jax.Array, Pasts, jax.Array, jax.Array]) -> jax.Array:
            at, _, _, _, has_ended = carry
            return (at < tokens) & ~jnp.all(has_ended)

        def one_more(carry: tuple[jax.Array, jax.Array, Pasts, jax.Array, jax.Array]) -> tuple[Any, ...]:
            at, token, past, written, has_ended = carry
            # The first time, this is the prompt's last token again: the past stays the same, and its logits result.
            logits, past = next_of_rows(weights, token, places + at, past)
            following = jnp.where(has_ended, ends[0], chosen(logits, samples, at))
            written = jax.lax.dynamic_update_index_in_dim(written, following, at, axis=1)
            return at + 1, following, past, written, has_ended | is_end(following)

        nothing = jnp.full((rows, tokens), ends[0], jnp.int32)
        start = (jnp.int32(0), last, past, nothing, lengths == 0)
        written = jax.lax.while_loop(goes_on, one_more, start)[3]
        counts = jnp.sum(jnp.cumsum(is_end(written), axis=1) == 0, axis=1, dtype=jnp.int32)
        return {TOKENS: {"values": written[:, None]}, LENGTH: {"values": counts[:, None]}}

    return Program(model, weights, outputs, is_packed=False)


Decode = Callable[[Sequence[int]], str]


def readable(
    columns: Mapping[str, np.ndarray], decode: Decode, *, stop: Sequence[str] = (), spell: Decode | None = None
) -> dict[str, Any]:
    """The columns of the files: each row's tokens, their text, and whether the text ended.

    Args:
        columns: the output of the program.
        decode: returns the text of tokens.
        stop: a text ends before the first of these; its tokens include those of that string.
        spell: returns the text with special tokens spelled out, to search for `stop`; None: `decode`.
    """
    tokens, counts = columns[TOKENS], np.array(columns[LENGTH])
    has_ended = counts < tokens.shape[1]
    for row, count in enumerate(counts.tolist()):
        if (until := tokens_until_stop(stop, tokens[row, :count].tolist(), spell or decode)) is not None:
            counts[row], has_ended[row] = until, True
    is_kept = np.arange(tokens.shape[1]) < counts[:, None]
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    texts = [before_any(stop, decode(row[:count].tolist())) for row, count in zip(tokens, counts, strict=True)]
    return {
        TOKENS: pa.ListArray.from_arrays(offsets, pa.array(tokens[is_kept])),
        TEXT: pa.array(texts, pa.string()),
        FINISHED: pa.array(has_ended),
    }


def _next_of_row(model: Model) -> Callable[[Weights, jax.Array, jax.Array, Pasts], tuple[jax.Array, Pasts]]:
    """`Model.next` for a single row, at its own position."""

    def next_of_row(weights: Weights, token: jax.Array, at: jax.Array, past: Pasts) -> tuple[jax.Array, Pasts]:
        with_rows = jax.tree.map(lambda seen: jnp.expand_dims(seen, 1), past)
        logits, after = model.next(weights, token[None], at, with_rows)
        return logits[0], jax.tree.map(lambda seen: seen[:, 0], after)

    return next_of_row
