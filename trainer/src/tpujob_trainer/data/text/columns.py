"""What a column of text, of messages or of tokens becomes: texts or token ids, and rows that are no use.

A kind is called with an Arrow column and the rows to take of it, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Render = Callable[[Sequence[Any]], str]
"""The text of a conversation."""


@dataclass(frozen=True)
class Made:
    """Rows of a column in the order wanted."""

    column: Any
    """Arrow large_string, or large_list of int32 [rows]; null where a row is skipped."""
    sizes: np.ndarray
    """int64 [rows]"""
    skipped: dict[str, np.ndarray]
    """For each cause a bool [rows]; no row has two."""

    def take(self, rows: np.ndarray) -> Made:
        """Some of the rows."""
        if len(rows) == len(self.column):
            return self
        return Made(self.column.take(pa.array(rows)), self.sizes[rows], {})


Kind = Callable[[Any, np.ndarray], Made]


def texts(column: Any, rows: np.ndarray) -> Made:
    """Texts of any Arrow type of text or bytes."""
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


def messages(column: Any, rows: np.ndarray, *, render: Render) -> Made:
    """Conversations as the template writes them; those that it refuses are skipped."""
    given = _conversations(_one_array(column).take(pa.array(rows)))
    written: list[bytes | None] = []
    refused = np.zeros(len(given), dtype=bool)
    for at, conversation in enumerate(given):
        text = None
        if conversation is _NO_CONVERSATION:
            refused[at] = True
        elif conversation:
            try:
                text = render(conversation)
            except ConversationError:
                refused[at] = True
        written.append(None if text is None else text.encode(errors="surrogatepass"))
    made = _texts(pa.array(written, pa.large_binary()))
    is_empty = np.array([conversation is not None and not conversation for conversation in given], dtype=bool)
    skipped = {cause: mask & ~refused & ~is_empty for cause, mask in made.skipped.items()}
    skipped["empty"] |= is_empty
    return Made(made.column, made.sizes, skipped | {"refused by the chat template": refused})


def _conversations(column: Any) -> list[Any]:
    """The conversations of a column of lists, or of JSON."""
    given = column.to_pylist()
    if pa.types.is_nested(column.type):
        return given
    return [None if text is None else _conversation(text) for text in given]


def _conversation(text: bytes | str) -> Any:
    try:
        conversation = json.loads(text)
    except ValueError:
        return _NO_CONVERSATION
    return conversation if isinstance(conversation, list) else _NO_CONVERSATION


_NO_CONVERSATION = object()


class ConversationError(Exception):
    """A conversation that the template cannot write."""


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
    except pa.ArrowInvalid:  # some row is not UTF-8: look which
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
