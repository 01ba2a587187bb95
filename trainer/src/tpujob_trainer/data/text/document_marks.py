"""Documents of token ids: adds the tokens that begin and end each, and refuses texts with special tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


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
