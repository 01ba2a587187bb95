"""The first rows of a source: `maxRows`, applied before anything is divided.

Files count in the order of their names, and rows in the order of their file. Where a file does not say how many rows it
has (lines, TFRecords) it is read from its beginning until they are counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats import FileScan
from tpujob_trainer.data.manifest.listing import Listing
from tpujob_trainer.data.sources.files import explained
from tpujob_trainer.errors import ConfigurationError


def limited(
    listing: Listing, scans: Sequence[FileScan], column: Column, *, unit_bytes: int
) -> tuple[Listing, list[FileScan]]:
    """The files and parts that hold the first rows, the last part cut behind the last row; all without a limit.

    Raises:
        ConfigurationError: a file among them can only be read whole.
    """
    if column.max_rows is None:
        return listing, list(scans)
    left, kept = column.max_rows, []
    for at, scan in enumerate(scans):
        if left <= 0:
            break
        counts = np.zeros_like(scan.counts)
        for part, count in enumerate(scan.counts.tolist()):
            counts[part], rows = _elements(listing, at, scan, part, count, left, column, unit_bytes)
            left -= rows
        sizes = (scan.sizes * np.divide(counts, np.maximum(scan.counts, 1))).astype(np.int64)
        kept.append(dataclasses.replace(scan, counts=counts, sizes=sizes))
    return dataclasses.replace(listing, files=listing.files[: len(kept)]), kept


def up_to(listing: Listing, last: str) -> Listing:
    """The files up to one of them; a file with a later name is none of the first."""
    return dataclasses.replace(listing, files=[file for file in listing.files if file.path <= last])


def _elements(
    listing: Listing, at: int, scan: FileScan, part: int, count: int, rows: int, column: Column, unit_bytes: int
) -> tuple[int, int]:
    """How many elements of a part hold its first rows, and how many rows that are."""
    if listing.format.elements == "rows":
        return min(count, rows), min(count, rows)
    file = listing.files[at]
    if listing.format.elements == "files" or count <= 1 < file.size:
        raise ConfigurationError(
            f"{column.field.rpartition('.')[0]}.maxRows: {file.path!r} can only be read whole; give files that can be "
            "cut (parquet, plain jsonl or text, TFRecords, array records), or leave maxRows out"
        )
    with explained(listing.root.locate(file.path)):
        opened = listing.format.open(listing.root, file, scan.digest, column)
        return _counted(lambda first, size: len(opened.read(part, first, size).column), count, rows, unit_bytes)


def _counted(rows_of: Callable[[int, int], int], count: int, wanted: int, piece: int) -> tuple[int, int]:
    """The fewest elements that hold so many rows, or all; `rows_of(first, elements)` are the rows that begin there."""
    first, rows = 0, 0
    while first < count:
        size = min(piece, count - first)
        here = rows_of(first, size)
        if rows + here >= wanted:
            low, high = 1, size
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if rows + rows_of(first, middle) >= wanted else (middle + 1, high)
            return first + low, wanted
        first, rows = first + size, rows + here
    return count, rows
