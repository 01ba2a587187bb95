"""Which rows of a unit are computed together, and which are written into one file. Pure.

A batch has sequences of one length, into which rows are packed: attention keeps the rows of a sequence apart. A batch
has the same number of tokens at every length: half the length, twice the sequences. So its cost is about the same at
every length, and the fewer batches the better.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_LENGTH = 16
"""Least length of a bucket; also the tokens of a sequence for each row that it may hold."""
HALVINGS = 2
"""How often the longest batch is halved: the rest of a unit is computed in the smallest one that holds it."""


@dataclass(frozen=True)
class Batch:
    """Rows that are computed together, and their positions; each array is int64 [rows]."""

    rows: np.ndarray
    """Their positions in the unit."""
    sequences: np.ndarray
    """Their sequences in the batch, from 0."""
    starts: np.ndarray
    """Their first positions in the sequence."""
    slots: np.ndarray
    """Their numbers among the rows of the sequence, from 0."""
    length: int
    """Tokens of a sequence."""
    size: int
    """Number of sequences, including empty ones."""


def bucket_lengths(sequence_length: int, count: int) -> tuple[int, ...]:
    """The lengths of sequences to compile for, ascending; the last is the sequence length."""
    lengths = [sequence_length]
    while len(lengths) < count and lengths[0] % 2 == 0 and lengths[0] // 2 >= LEAST_LENGTH:
        lengths.insert(0, lengths[0] // 2)
    return tuple(lengths)


def batch_rows(length: int, *, longest: int, rows: int) -> int:
    """Sequences of a batch of this length, if one of the longest length has `rows`."""
    return rows * (longest // length)


def part_sizes(rows: int, devices: int) -> tuple[int, ...]:
    """Sequences of a batch of the longest length, ascending: `rows`, and its halves that divide over the devices."""
    sizes = [rows]
    while len(sizes) <= HALVINGS and sizes[0] % (2 * devices) == 0:
        sizes.insert(0, sizes[0] // 2)
    return tuple(sizes)


def most_rows(length: int) -> int:
    """The most rows that a sequence may hold when rows are packed."""
    return max(1, length // LEAST_LENGTH)


def plan_packed(lengths: np.ndarray, buckets: Sequence[int], sizes: Sequence[int]) -> list[Batch]:
    """The batches of a unit, with several rows in a sequence; each row is in one batch.

    Each row, the longest first, goes where it leaves the least room, or begins a sequence of its bucket. Rows of
    sequences that do not fill a batch are packed again, into the longest sequences.

    Args:
        lengths: int64 [rows of the unit], tokens, each at most the longest bucket and at least 1.
        buckets: ascending.
        sizes: sequences of a batch of the longest bucket, ascending (`part_sizes`).
    """
    made: list[Batch] = []
    longest, rows = buckets[-1], sizes[-1]
    of_row = np.asarray(buckets)[np.searchsorted(np.asarray(buckets), lengths)]
    packed = _packed(np.argsort(-lengths, kind="stable"), lengths, of_row)
    left: list[int] = []
    for length in buckets:
        here = [sequence for sequence in packed if of_row[sequence[0]] == length]
        size = batch_rows(length, longest=longest, rows=rows)
        full = len(here) // size * size
        made += [_batch(here[first : first + size], lengths, length, size) for first in range(0, full, size)]
        left += [row for sequence in here[full:] for row in sequence]
    again = np.array(sorted(left, key=lambda row: -lengths[row]), dtype=np.int64)
    packed = _packed(again, lengths, np.full_like(of_row, longest))
    for first in range(0, len(packed), rows):
        chosen = packed[first : first + rows]
        made.append(_batch(chosen, lengths, longest, sizes[bisect.bisect_left(sizes, len(chosen))]))
    return made


def _packed(order: np.ndarray, lengths: np.ndarray, capacity: np.ndarray) -> list[list[int]]:
    """The rows of each sequence, in their order; a sequence has the capacity of its first row."""
    made: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    """Free tokens and their sequence, ascending."""
    for row in order.tolist():
        need = int(lengths[row])
        at = bisect.bisect_left(rooms, (need, -1))
        if at < len(rooms):
            room, sequence = rooms.pop(at)
            made[sequence].append(row)
        else:
            room, sequence = int(capacity[row]), len(made)
            made.append([row])
        if room > need and len(made[sequence]) < most_rows(int(capacity[made[sequence][0]])):
            bisect.insort(rooms, (room - need, sequence))
    return made


def _batch(sequences: Sequence[Sequence[int]], lengths: np.ndarray, length: int, size: int) -> Batch:
    counts = [len(rows) for rows in sequences]
    rows = np.array([row for each in sequences for row in each], dtype=np.int64)
    starts = [np.cumsum(lengths[list(each)]) - lengths[list(each)] for each in sequences]
    return Batch(
        rows=rows,
        sequences=np.repeat(np.arange(len(sequences)), counts),
        starts=np.concatenate(starts),
        slots=np.concatenate([np.arange(count) for count in counts]),
        length=length,
        size=size,
    )


def plan_alone(lengths: np.ndarray, buckets: Sequence[int], rows: int) -> list[Batch]:
    """The batches of a unit, with each row in its own sequence; each row is in one batch.

    The rest of a bucket moves up to the next one if there is room in its last batch; otherwise it makes a batch that is
    not full.

    Args:
        lengths: int64 [rows of the unit], tokens, each at most the longest bucket and at least 1.
        buckets: ascending.
        rows: of a batch of the longest bucket.
    """
    made: list[tuple[np.ndarray, int]] = []
    of_row = np.searchsorted(np.asarray(buckets), lengths)
    left = np.empty(0, dtype=np.int64)
    for number, length in enumerate(buckets):
        size = batch_rows(length, longest=buckets[-1], rows=rows)
        here = np.flatnonzero(of_row == number)
        room = -len(here) % size if len(here) else size
        if len(left) > room:
            made.append((left, buckets[number - 1]))
        else:
            here = np.concatenate([here, left])
        full = len(here) // size * size
        made += [(here[first : first + size], length) for first in range(0, full, size)]
        left = here[full:]
    if len(left):
        made.append((left, buckets[-1]))
    return [
        _batch([[row] for row in chosen.tolist()], lengths, length, batch_rows(length, longest=buckets[-1], rows=rows))
        for chosen, length in made
    ]


def shard_rows(row_bytes: np.ndarray, shard_bytes: int) -> list[slice]:
    """Consecutive rows of a unit for each of its files.

    Args:
        row_bytes: int64 [rows].
        shard_bytes: most bytes of a file; a single row may have more.
    """
    made: list[slice] = []
    first, size = 0, 0
    for row, num_bytes in enumerate(row_bytes.tolist()):
        if row > first and size + num_bytes > shard_bytes:
            made.append(slice(first, row))
            first, size = row, 0
        size += num_bytes
    return [*made, slice(first, len(row_bytes))] if len(row_bytes) > first else made
