"""Rows to documents of tokens: what a lane calls with some rows at a time."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Protocol

import numpy as np

from tpujob_trainer.data.config import Column
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.columns import Kind
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.errors import ConfigurationError


class Encoded(NamedTuple):
    """Documents as tokens."""

    ids: np.ndarray
    """int32, of all documents one after the other."""
    lengths: np.ndarray
    """int64 [rows], tokens of each; 0 for a row that cannot be used."""
    learned: np.ndarray | None = None
    """bool, for each id whether it is learned; None: all are."""


class Documents(Protocol):
    """Tokens of rows."""

    @property
    def refusal(self) -> str:
        """Why a row has no token."""

    def __call__(self, column: Any) -> Encoded:
        """The documents of rows that a `Kind` made."""


class TextDocuments:
    """Texts, each between the tokens that begin and end a document."""

    refusal = "special token in the text"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, column: Any) -> Encoded:
        return Encoded(*self._tokenizer.documents(column))


class WrittenDocuments:
    """Texts in which the special tokens are written out, as by a chat template; nothing is added to them."""

    refusal = "no token"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, column: Any) -> Encoded:
        encoded = [np.array(ids, dtype=np.int32) for ids in self._tokenizer.encode(column.to_pylist())]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        return Encoded(np.concatenate(encoded) if encoded else np.empty(0, dtype=np.int32), lengths)


class LearnedDocuments:
    """The same, of which some characters are learned (`columns.LEARNED`): a token that has one of them is."""

    refusal = "no token"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, column: Any) -> Encoded:
        texts = column.field("text").to_pylist()
        encoded = self._tokenizer.encode_with_offsets(texts)
        learned = [
            _overlaps(offsets, np.array(borders, dtype=np.int64).reshape(-1, 2))
            for (_, offsets), borders in zip(encoded, column.field("learned").to_pylist(), strict=True)
        ]
        lengths = np.array([len(ids) for ids, _ in encoded], dtype=np.int64)
        ids = np.concatenate([ids for ids, _ in encoded]) if encoded else np.empty(0, dtype=np.int32)
        return Encoded(ids, lengths, np.concatenate(learned) if learned else np.empty(0, dtype=bool))


def _overlaps(offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Whether each token, [tokens, 2], has a character of one of the spans, [spans, 2]; both ascend."""
    if not len(spans):
        return np.zeros(len(offsets), dtype=bool)
    begin, end = offsets[:, 0], np.maximum(offsets[:, 1], offsets[:, 0] + 1)
    at = np.minimum(np.searchsorted(spans[:, 1], begin, side="right"), len(spans) - 1)  # the first that ends after it
    overlaps: np.ndarray = (spans[at, 0] < end) & (spans[at, 1] > begin)
    return overlaps


class TokenDocuments:
    """Ids as they are, a document in each row."""

    refusal = "no token"

    def __call__(self, column: Any) -> Encoded:
        offsets = column.offsets.to_numpy()
        ids = column.flatten().to_numpy(zero_copy_only=False)
        return Encoded(ids.astype(np.int32), np.diff(offsets).astype(np.int64))


def documents_of(column: Column, tokenizer: Tokenizer) -> Documents:
    """How the rows of a column become tokens."""
    if column.kind == "tokens":
        return TokenDocuments()
    if column.kind == "text":
        return TextDocuments(tokenizer)
    return LearnedDocuments(tokenizer) if column.loss_on == "assistant" else WrittenDocuments(tokenizer)


def kind_of(column: Column, tokenizer: Tokenizer) -> Kind:
    """How a column becomes texts or ids.

    Raises:
        ConfigurationError: there are messages, and the tokenizer has no template for them.
    """
    if column.kind == "tokens":
        return functools.partial(columns.tokens, vocab_size=tokenizer.vocab_size)
    if column.kind == "text":
        return columns.texts
    if tokenizer.chat_template is None:
        raise ConfigurationError(
            f"{column.field}: {column.name!r} holds conversations, and the tokenizer has no chat template; name one "
            "that has chat_template in its tokenizer_config.json, or a chat_template.jinja beside it"
        )
    render = functools.partial(tokenizer.chat_template.rendered, loss_on=column.loss_on)
    return functools.partial(columns.messages, render=render, marks_learned=column.loss_on == "assistant")
