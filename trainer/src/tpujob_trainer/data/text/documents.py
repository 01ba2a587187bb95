"""Converts rows to documents of tokens; a lane calls it with some rows at a time."""

import functools
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.template import Rendered
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.columns import ConversationError, Kind, Render
from tpujob_trainer.data.text.row_template import row_encoder, row_renderer
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.values.errors import ConfigurationError


def between_marks(
    encoded: Sequence[Sequence[int]], bos: int | None, eos: int, special: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Documents of these ids: all tokens concatenated, int32, and the number of tokens of each, int64.

    Args:
        encoded: the ids of each text; one with a special id becomes a document of no tokens.
        bos: begins each document, if not None.
        eos: ends each document.
        special: int32, ids that a text must not have, ascending.
    """
    counts = np.array([len(ids) for ids in encoded], dtype=np.int64)
    ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int32, count=int(counts.sum()))
    if not len(counts):
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    before = 0 if bos is None else 1
    lengths = counts + before + 1
    ends = np.cumsum(lengths)
    tokens = np.empty(int(ends[-1]), dtype=np.int32)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[ends - 1] = False
    if before:
        is_text[ends - lengths] = False
    tokens[is_text] = ids
    tokens[ends - 1] = eos
    if bos is not None:
        tokens[ends - lengths] = bos
    is_special = _contains(special, ids)
    if is_special.any():
        refused = np.zeros(len(counts), dtype=bool)
        refused[np.searchsorted(np.cumsum(counts), np.flatnonzero(is_special), side="right")] = True
        tokens = tokens[~np.repeat(refused, lengths)]
        lengths = np.where(refused, 0, lengths)
    return tokens, lengths


def _contains(some: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Whether each number is in `some`, int32 and ascending."""
    if not len(some):
        return np.zeros(len(numbers), dtype=bool)
    is_one = np.zeros(int(some[-1]) + 2, dtype=bool)
    is_one[some] = True
    return is_one[np.minimum(numbers, len(is_one) - 1)]


class Encoded(NamedTuple):
    """Documents as tokens."""

    ids: np.ndarray
    """int32, of all documents, concatenated."""
    lengths: np.ndarray
    """int64 [rows], tokens of each; 0 for a row that cannot be used."""
    learned: np.ndarray | None = None
    """bool, for each id whether it is learned; None: all are."""


class Documents(Protocol):
    """Converts rows to tokens."""

    @property
    def refusal(self) -> str:
        """The cause for which a row has no token."""

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
    """Texts in which special tokens are written out, as by a template."""

    refusal = "no token"

    def __init__(self, tokenizer: Tokenizer, *, adds_marks: bool) -> None:
        """`adds_marks`: whether to add the tokens that begin and end a document, if they are missing."""
        self._tokenizer = tokenizer
        self._adds_marks = adds_marks

    def __call__(self, column: Any) -> Encoded:
        encoded = [np.array(ids, dtype=np.int32) for ids in self._tokenizer.encode(column.to_pylist())]
        if self._adds_marks:
            encoded = [_marked(ids, self._tokenizer) for ids in encoded]
        return Encoded(_joined(encoded, np.int32), _lengths(encoded))


class LearnedDocuments:
    """The same, with some characters learned (`columns.LEARNED`): a token with one of them is learned."""

    refusal = "no token"

    def __init__(self, tokenizer: Tokenizer, *, adds_marks: bool) -> None:
        self._tokenizer = tokenizer
        self._adds_marks = adds_marks

    def __call__(self, column: Any) -> Encoded:
        found = self._tokenizer.encode_with_offsets(column.field("text").to_pylist())
        learned = [
            _overlaps(offsets, np.array(borders, dtype=np.int64).reshape(-1, 2))
            for (_, offsets), borders in zip(found, column.field("learned").to_pylist(), strict=True)
        ]
        encoded = [ids for ids, _ in found]
        if self._adds_marks:
            marked = [_marked(ids, self._tokenizer) for ids in encoded]
            learned = [_as_marked(*each, self._tokenizer) for each in zip(learned, encoded, marked, strict=True)]
            encoded = marked
        return Encoded(_joined(encoded, np.int32), _lengths(encoded), _joined(learned, bool))


def _marked(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The ids between bos and eos, which are not doubled; no ids stay no ids."""
    if not len(ids):
        return ids
    before = [] if tokenizer.bos is None or ids[0] == tokenizer.bos else [tokenizer.bos]
    after = [] if ids[-1] == tokenizer.eos else [tokenizer.eos]
    return np.concatenate([before, ids, after]).astype(np.int32)


def _as_marked(learned: np.ndarray, ids: np.ndarray, marked: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Which of the marked ids are learned: an added eos if the last id of the text is, an added bos never."""
    if len(marked) == len(ids):
        return learned
    before = int(ids[0] != tokenizer.bos and tokenizer.bos is not None)
    after = len(marked) - len(ids) - before
    return np.concatenate([np.zeros(before, dtype=bool), learned, np.repeat(learned[-1:], after)])


def _joined(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype=dtype)


def _lengths(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([len(part) for part in parts], dtype=np.int64)


def _overlaps(offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Whether each token, [tokens, 2], has a character of one of the spans, [spans, 2]; both ascend."""
    if not len(spans):
        return np.zeros(len(offsets), dtype=bool)
    begin, end = offsets[:, 0], np.maximum(offsets[:, 1], offsets[:, 0] + 1)
    at = np.minimum(np.searchsorted(spans[:, 1], begin, side="right"), len(spans) - 1)  # the first that ends after it
    overlaps: np.ndarray = (spans[at, 0] < end) & (spans[at, 1] > begin)
    return overlaps


class TokenDocuments:
    """Ids unchanged, one document in each row."""

    refusal = "no token"

    def __call__(self, column: Any) -> Encoded:
        offsets = column.offsets.to_numpy()
        ids = column.flatten().to_numpy(zero_copy_only=False)
        return Encoded(ids.astype(np.int32), np.diff(offsets).astype(np.int64))


def documents_of(column: Column, tokenizer: Tokenizer) -> Documents:
    """The converter of a column's rows to tokens."""
    if column.kind == "tokens" or column.makes_tokens:
        return TokenDocuments()
    if column.special_tokens == "text":
        tokenizer = tokenizer.spelled_out
    if column.kind == "text" and column.special_tokens != "allow":
        return TextDocuments(tokenizer)
    adds_marks = column.kind == "text" or column.writes_text
    if column.loss_on == "assistant":
        return LearnedDocuments(tokenizer, adds_marks=adds_marks)
    return WrittenDocuments(tokenizer, adds_marks=adds_marks)


def kind_of(column: Column, tokenizer: Tokenizer) -> Kind:
    """The converter of a column to texts or ids.

    Raises:
        ConfigurationError: there are conversations, and the tokenizer has no chat template.
    """
    if column.kind == "tokens":
        return functools.partial(columns.tokens, vocab_size=tokenizer.vocab_size)
    if column.kind == "text":
        return columns.texts
    if column.makes_tokens:
        return functools.partial(columns.row_tokens, encode=row_encoder(column), vocab_size=tokenizer.vocab_size)
    chat = tokenizer.chat_template and tokenizer.chat_template.called(column.chat)
    if chat is None and not column.writes_text:
        raise ConfigurationError(
            f"{column.field}: {column.name!r} makes conversations, and the tokenizer has no chat template; name one "
            "that has chat_template in its tokenizer_config.json, or a chat_template.jinja beside it"
        )
    if chat is not None and column.conversation is not None and not chat.writes_tools:
        raise ConfigurationError(
            f"{column.field_of(column.conversation[1])}: the chat template never writes tools; name a tokenizer whose "
            "template does, or leave the key out"
        )
    marks_learned = column.loss_on == "assistant"
    if column.kind == "row":
        render = row_renderer(column, tokenizer.special_texts, chat)
        kind = columns.rows
    else:
        assert chat is not None
        render = functools.partial(chat.written, loss_on=column.loss_on, is_prompt=column.is_prompt)
        kind = columns.messages
    if column.special_tokens == "refuse":
        render = functools.partial(_without_special, render, re.compile(_any_of(tokenizer.special_texts.values())))
    return functools.partial(kind, render=render, marks_learned=marks_learned)


def _without_special(render: Render, special: re.Pattern[str], value: Any) -> Rendered:
    if special.search(json.dumps(value, ensure_ascii=False, default=str)):
        raise ConversationError("it has a special token in it", cause=TextDocuments.refusal)
    return render(value)


def _any_of(texts: Iterable[str]) -> str:
    """A pattern that matches any of these texts inside JSON; without texts, a pattern that matches nothing."""
    return "|".join(re.escape(json.dumps(text, ensure_ascii=False)[1:-1]) for text in texts) or "(?!)"
