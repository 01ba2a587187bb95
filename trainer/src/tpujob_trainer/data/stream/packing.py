"""Packs spans of tokens into the rows of a batch: all rows of a process at once, with numpy."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenSpan:
    """Tokens that fill rows of a batch one after the other; the last one is only predicted."""

    tokens: np.ndarray
    """int32 [rows · length + 1]"""
    starts: np.ndarray
    """Where documents begin, ascending, after the first token and within the tokens."""
    there: int
    """How many of the tokens are real; the rest is padding."""
    learned: np.ndarray | None = None
    """bool, for each token whether it is learned; None: all are."""


@dataclass(frozen=True)
class Windows:
    """Rows of a global batch; int32 [rows, sequence length] except the mask."""

    inputs: np.ndarray
    targets: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray
    loss_mask: np.ndarray
    """bool"""


def pack(
    parts: Iterable[tuple[np.ndarray, TokenSpan]], num_rows: int, length: int, *, blocks_attention: bool = True
) -> Windows:
    """The windows of `num_rows` rows.

    Args:
        parts: each span, and the rows that it fills, ascending; -1 for a row that is not wanted.
        num_rows: rows wanted; the parts fill each of them.
        length: inputs of a row.
        blocks_attention: whether documents in a row are kept apart; else each row is one document.
    """
    inputs = np.empty((num_rows, length), dtype=np.int32)
    targets = np.empty((num_rows, length), dtype=np.int32)
    is_learned: np.ndarray | None = None
    all_rows, starts, ending, size = [], [], [], 0
    for rows, span in parts:
        here, there = span.tokens[:-1].reshape(-1, length), span.tokens[1:].reshape(-1, length)
        if rows.min() < 0:
            kept = rows >= 0
            inputs[rows[kept]], targets[rows[kept]] = here[kept], there[kept]
        else:
            inputs[rows], targets[rows] = here, there
        if span.learned is not None:
            kept = rows >= 0
            is_learned = np.ones((num_rows, length), dtype=bool) if is_learned is None else is_learned
            is_learned[rows[kept]] = span.learned[1:].reshape(-1, length)[kept]
        all_rows.append(rows)
        starts.append(span.starts + size)
        size += len(rows) * length
        if span.there < len(span.tokens):
            ending.append((rows, span.there))
    if blocks_attention:
        rows, begun = np.concatenate(all_rows), np.concatenate(starts)
        loss_mask = np.ones((num_rows, length), dtype=bool)
        loss_mask.reshape(-1)[_placed(begun - 1, rows, length)] = False
        # A document that begins right after a span begins at the start of a row, where a segment begins anyway.
        begins = [np.arange(0, num_rows * length, length), _placed(begun[begun < size], rows, length)]
        segment_ids, positions = _segments(np.unique(np.concatenate(begins)), num_rows, length)
    else:
        segment_ids = np.ones((num_rows, length), dtype=np.int32)
        positions = np.tile(np.arange(length, dtype=np.int32), (num_rows, 1))
        loss_mask = np.ones((num_rows, length), dtype=bool)
    for rows, real in ending:
        for at, row in enumerate(rows.tolist()):
            if row >= 0:
                left = min(max(real - at * length, 0), length)
                segment_ids[row, left:] = positions[row, left:] = 0
                loss_mask[row, min(max(real - 1 - at * length, 0), length) :] = False
    if is_learned is not None:
        loss_mask &= is_learned
    return Windows(inputs, targets, segment_ids, positions, loss_mask)


def _placed(places: np.ndarray, rows: np.ndarray, length: int) -> np.ndarray:
    """The places in the batch for places in the concatenated spans, without those in rows that are not wanted."""
    row, column = np.divmod(places, length)
    into = rows[row]
    return (into * length + column)[into >= 0]


def _segments(begins: np.ndarray, num_rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Segment ids from 1 in each row, and positions from 0 in each segment; segments begin at `begins`, as rows do."""
    lengths = np.diff(begins, append=num_rows * length)
    first_of_row = np.searchsorted(begins, begins // length * length)
    number = (np.arange(len(begins)) - first_of_row + 1).astype(np.int32)
    positions = np.arange(num_rows * length, dtype=np.int32) - np.repeat(begins.astype(np.int32), lengths)
    return np.repeat(number, lengths).reshape(num_rows, length), positions.reshape(num_rows, length)
