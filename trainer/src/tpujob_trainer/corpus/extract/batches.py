"""Which rows of a unit are computed together, and how rows are divided into units. Pure.

A batch has the same number of tokens in every bucket: half the length, twice the rows. So its cost is about the same in
every bucket, and the fewer batches the better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_LENGTH = 16
"""Of a bucket."""
UNITS_PER_WORKER = 16
"""That each worker should get at least, so that the slowest ends soon after the others."""
LEAST_WORKERS = 16
"""Units are made for so many workers at least: more may come later."""


@dataclass(frozen=True)
class Batch:
    """Rows that are computed together."""

    rows: np.ndarray
    """int64 [rows], places in the unit; at most as many as the bucket's batch has."""
    length: int
    """Tokens that each row is filled up to."""


def bucket_lengths(sequence_length: int, count: int) -> tuple[int, ...]:
    """Row lengths that are compiled for, ascending; the last is the sequence length."""
    lengths = [sequence_length]
    while len(lengths) < count and lengths[0] % 2 == 0 and lengths[0] // 2 >= LEAST_LENGTH:
        lengths.insert(0, lengths[0] // 2)
    return tuple(lengths)


def batch_rows(length: int, *, longest: int, rows: int) -> int:
    """Rows of a batch of this length, where one of the longest length has `rows`."""
    return rows * (longest // length)


def plan_batches(lengths: np.ndarray, buckets: Sequence[int], rows: int) -> list[Batch]:
    """The batches of a unit; each row is in one of them.

    What is left of a bucket moves up to the next one if there is room in its last batch, else it makes a batch that is
    not full.

    Args:
        lengths: int64 [rows of the unit], tokens, each at most the longest bucket and at least 1.
        buckets: ascending.
        rows: of a batch of the longest bucket.
    """
    made: list[Batch] = []
    of_row = np.searchsorted(np.asarray(buckets), lengths)
    left = np.empty(0, dtype=np.int64)
    for number, length in enumerate(buckets):
        size = batch_rows(length, longest=buckets[-1], rows=rows)
        here = np.flatnonzero(of_row == number)
        room = -len(here) % size if len(here) else size
        if len(left) > room:
            made.append(Batch(left, buckets[number - 1]))
        else:
            here = np.concatenate([here, left])
        full = len(here) // size * size
        made += [Batch(here[first : first + size], length) for first in range(0, full, size)]
        left = here[full:]
    return [*made, Batch(left, buckets[-1])] if len(left) else made


def rows_per_unit(*, row_bytes: int, shard_bytes: int, batch: int, total_rows: int | None, workers: int) -> int:
    """Rows of a unit: what fills one file, or fewer, so that each worker gets several units; whole batches.

    Args:
        row_bytes: of the values of a full row.
        shard_bytes: of a file.
        batch: rows of a batch.
        total_rows: of the corpus; None if unknown.
        workers: at the start.
    """
    rows = max(1, shard_bytes // row_bytes)
    if total_rows is not None:
        rows = min(rows, -(-total_rows // (UNITS_PER_WORKER * max(workers, LEAST_WORKERS))))
    return max(1, rows // batch) * batch


def shard_rows(row_bytes: np.ndarray, shard_bytes: int) -> list[slice]:
    """Consecutive rows of a unit for each of its files.

    Args:
        row_bytes: int64 [rows].
        shard_bytes: most of a file, but for a single row.
    """
    made: list[slice] = []
    first, size = 0, 0
    for row, num_bytes in enumerate(row_bytes.tolist()):
        if row > first and size + num_bytes > shard_bytes:
            made.append(slice(first, row))
            first, size = row, 0
        size += num_bytes
    return [*made, slice(first, len(row_bytes))] if len(row_bytes) > first else made
