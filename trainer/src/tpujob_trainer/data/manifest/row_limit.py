"""Limits a source to its first rows (`maxRows`), before its files are cut into units.

Files are taken in the order of their names, and rows in the order of their file. A file that does not state its number
of rows (lines, TFRecords) is read from its beginning until they are counted.
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
    """The files and parts that hold the first rows, the last part cut after the last row; all if there is no limit.

    Raises:
        ConfigurationError: one of the files can only be read whole.
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
    """The files up to and including `last`; files with later names are beyond the limit."""
    return dataclasses.replace(listing, files=[file for file in listing.files if file.path <= last])


def _elements(
    listing: Listing, at: int, scan: FileScan, part: int, count: int, rows: int, column: Column, unit_bytes: int
) -> tuple[int, int]:
    """The number of elements of a part that hold its first rows, and the number of these rows."""
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
    """The fewest elements with `wanted` rows, or all, and their rows; `rows_of(first, elements)` counts its rows."""
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
