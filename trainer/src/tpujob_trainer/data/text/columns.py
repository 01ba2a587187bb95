"""Converts a column of text, messages or tokens to texts or token ids, and finds the rows that are unusable.

A kind is called with an Arrow column and the rows to take from it, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpujob_trainer.data.template import Rendered

Render = Callable[[Any], Rendered]
"""Returns the text of a conversation or a row, and which part of it is learned."""


@dataclass(frozen=True)
class Made:
    """Rows of a column in the requested order."""

    column: Any
    """Arrow large_string, or large_list of int32 [rows]; or a struct of `text` and `learned` (`LEARNED`). Null where a
    row is skipped."""
    sizes: np.ndarray
    """int64 [rows]"""
    skipped: dict[str, np.ndarray]
    """For each cause, bool [rows]; a row has at most one cause."""

    def take(self, rows: np.ndarray) -> Made:
        """Some of the rows."""
        if len(rows) == len(self.column):
            return self
        return Made(self.column.take(pa.array(rows)), self.sizes[rows], {})


Kind = Callable[[Any, np.ndarray], Made]


def texts(column: Any, rows: np.ndarray) -> Made:
    """Texts from a column of any Arrow type of text or bytes."""
    return _texts(_as_binary(column).take(pa.array(rows)))


def tokens(column: Any, rows: np.ndarray, *, vocab_size: int) -> Made:
    """Lists of token ids; rows with ids that the vocabulary does not have are skipped."""
    taken = _one_array(column.cast(pa.large_list(pa.int64()))).take(pa.array(rows))
    is_null = taken.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(taken), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ids = pc.fill_null(taken.flatten(), -1).to_numpy(zero_copy_only=False)
    outside = np.concatenate([[0], np.cumsum((ids < 0) | (ids >= vocab_size))])
    ends = np.cumsum(lengths)
    is_outside = outside[ends] > outside[ends - lengths]
    offsets = np.concatenate([[0], ends])
    made = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(np.int32)))
    skipped = {"null": is_null, "empty": ~is_null & (lengths == 0), "id outside of the vocabulary": is_outside}
    return Made(made, lengths * 4, skipped)


def messages(column: Any, order: np.ndarray, *, render: Render, marks_learned: bool) -> Made:
    """Conversations as the template writes them; those that it refuses are skipped.

    Args:
        column: lists of messages, or JSON.
        order: the rows to take.
        render: writes one.
        marks_learned: whether the result states which part of each text is learned.
    """
    given = _conversations(_one_array(column).take(pa.array(order)))
    return rendered(given, render, refusal="refused by the chat template", marks_learned=marks_learned)


def rows(column: Any, order: np.ndarray, *, render: Render, marks_learned: bool) -> Made:
    """Texts that a template makes from several columns, structs or JSON; rows that it refuses are skipped."""
    return rendered(_rows(column, order), render, refusal="refused by the template", marks_learned=marks_learned)


def row_tokens(column: Any, order: np.ndarray, *, encode: Callable[[Any], list[int]], vocab_size: int) -> Made:
    """Token ids that the user's function makes from several columns; rows that it leaves out are skipped."""
    ids: list[list[int] | None] = []
    is_left_out = np.zeros(len(order), dtype=bool)
    for at, row in enumerate(_rows(column, order)):
        try:
            ids.append(None if row is None else encode(row))
        except ConversationError:
            ids.append(None)
            is_left_out[at] = True
    made = tokens(pa.array(ids, pa.large_list(pa.int64())), np.arange(len(ids)), vocab_size=vocab_size)
    is_null = made.skipped["null"] & ~is_left_out
    return Made(made.column, made.sizes, {**made.skipped, "null": is_null, LEFT_OUT: is_left_out})


def _rows(column: Any, order: np.ndarray) -> list[Any]:
    """The rows of several columns, given as structs or JSON, as dictionaries."""
    taken = _one_array(column).take(pa.array(order))
    given: list[Any] = taken.to_pylist()
    if pa.types.is_struct(taken.type):
        return given
    return [None if text is None else json.loads(text) for text in given]


def rendered(values: Sequence[Any], render: Render, *, refusal: str, marks_learned: bool) -> Made:
    """Texts of values; skips None as null, values without content as empty, and those that the template refuses.

    Args:
        values: what the template is called with; `UNREADABLE` is refused.
        render: writes one.
        refusal: the cause of values that the template refuses.
        marks_learned: whether the result states which part of each text is learned.
    """
    texts: list[bytes | None] = []
    learned: list[list[int]] = []
    causes: dict[str, np.ndarray] = {"null": np.zeros(len(values), dtype=bool)}
    for at, value in enumerate(values):
        text, spans, cause = _rendered(value, render, refusal)
        if cause is None and marks_learned and not spans and text:
            cause = NOT_LEARNED
        if cause is not None:
            causes.setdefault(cause, np.zeros(len(values), dtype=bool))[at] = True
        texts.append(None if cause or text is None else text.encode(errors="surrogatepass"))
        learned.append([border for span in spans for border in span])
    made = _texts(pa.array(texts, pa.large_binary()))
    told = np.logical_or.reduce(list(causes.values()))
    for cause, mask in made.skipped.items():
        causes[cause] = causes.get(cause, False) | (mask & ~told)
    if not marks_learned:
        return Made(made.column, made.sizes, causes)
    spans_column = pa.array(learned, LEARNED.field("learned").type)
    column = pa.StructArray.from_arrays([made.column, spans_column], fields=list(LEARNED))
    return Made(column, made.sizes, causes)


def _rendered(value: Any, render: Render, refusal: str) -> tuple[str | None, tuple[tuple[int, int], ...], str | None]:
    """The text, which part of it is learned, and why it is skipped."""
    if value is None:
        return None, (), "null"
    if value is UNREADABLE:
        return None, (), refusal
    if not value:
        return None, (), "empty"
    try:
        found = render(value)
    except ConversationError as error:
        return None, (), error.cause or refusal
    return found.text, found.learned, None


def _conversations(column: Any) -> list[Any]:
    """The conversations of a column of lists, or of JSON."""
    given = column.to_pylist()
    if pa.types.is_nested(column.type):
        return given
    return [None if text is None else _conversation(text) for text in given]


def _conversation(text: bytes | str) -> Any:
    try:
        conversation = json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE
    return conversation if isinstance(conversation, list) else UNREADABLE


UNREADABLE = object()
"""Stands for a row whose content no template can be called with."""

NOT_LEARNED = "nothing in it to learn"
"""A text in which the template marks nothing."""

LEFT_OUT = "left out by data.custom"
"""A row for which the user's function returned None: counted, and no fault of the data."""

LEARNED = pa.struct([("text", pa.large_string()), ("learned", pa.large_list(pa.int64()))])
"""A text, and the characters that are learned: begin, end, begin, end and so on."""


class ConversationError(Exception):
    """A conversation or a row that the template cannot write."""

    def __init__(self, message: str, *, cause: str | None = None) -> None:
        """`cause` is the cause by which rows are counted that are left out for it; None: refused."""
        super().__init__(message)
        self.cause = cause


KINDS: dict[str, Kind] = {"text": texts}


def _texts(shuffled: Any) -> Made:
    is_null = shuffled.is_null().to_numpy(zero_copy_only=False)
    made, is_invalid = _as_text(shuffled)
    lengths = pc.fill_null(pc.binary_length(made), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    is_empty = (lengths == 0) & ~is_null & ~is_invalid
    return Made(made, lengths, {"null": is_null, "empty": is_empty, "not UTF-8": is_invalid})


def _one_array(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _as_binary(column: Any) -> Any:
    """Text of any Arrow type as one large_binary array."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return _one_array(column.cast(pa.large_binary()))


def _as_text(column: Any) -> tuple[Any, np.ndarray]:
    """The rows as large_string, and which are not UTF-8 (null in the text)."""
    is_invalid = np.zeros(len(column), dtype=bool)
    try:
        return column.cast(pa.large_string()), is_invalid
    except pa.ArrowInvalid:  # some row is not UTF-8: find which
        for row, value in enumerate(column.to_pylist()):
            is_invalid[row] = value is not None and not _is_utf8(value)
    column = pc.if_else(pa.array(is_invalid), pa.scalar(None, pa.large_binary()), column)
    return column.cast(pa.large_string()), is_invalid


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
