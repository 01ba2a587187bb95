"""Rows to documents of tokens: what a lane calls with some rows at a time."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.data.config import Column
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.columns import Kind
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.errors import ConfigurationError


class Documents(Protocol):
    """Tokens of rows."""

    @property
    def refusal(self) -> str:
        """Why a row has no token."""

    def __call__(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Int32 ids one after the other, and int64 tokens of each row [rows]; 0 for a row that cannot be used."""


class TextDocuments:
    """Texts, each between the tokens that begin and end a document."""

    refusal = "special token in the text"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        return self._tokenizer.documents(column)


class WrittenDocuments:
    """Texts in which the special tokens are written out, as by a chat template; nothing is added to them."""

    refusal = "no token"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        encoded = [np.array(ids, dtype=np.int32) for ids in self._tokenizer.encode(column.to_pylist())]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        return (np.concatenate(encoded) if encoded else np.empty(0, dtype=np.int32)), lengths


class TokenDocuments:
    """Ids as they are, a document in each row."""

    refusal = "no token"

    def __call__(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        offsets = column.offsets.to_numpy()
        ids = column.flatten().to_numpy(zero_copy_only=False)
        return ids.astype(np.int32), np.diff(offsets).astype(np.int64)


def documents_of(column: Column, tokenizer: Tokenizer) -> Documents:
    """How the rows of a column become tokens."""
    if column.kind == "tokens":
        return TokenDocuments()
    return WrittenDocuments(tokenizer) if column.kind == "messages" else TextDocuments(tokenizer)


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
    return functools.partial(columns.messages, render=tokenizer.chat_template)
