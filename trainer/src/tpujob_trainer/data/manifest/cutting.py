"""Cuts parts of files into units: arithmetic only."""

from __future__ import annotations

import numpy as np


def cut_units(
    file: np.ndarray,
    part: np.ndarray,
    count: np.ndarray,
    size: np.ndarray,
    *,
    unit_bytes: int,
    minimum: int,
    least: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Units (file, part, first element, elements, bytes) of these parts of files, in their order.

    No unit is larger than `unit_bytes`, and there are at least `minimum` units, as far as `least` elements in each unit
    allow it. Empty parts have none.

    Args:
        file: [parts] number of the file that holds it.
        part: [parts] its number within the file.
        count: [parts] its elements.
        size: [parts] decoded bytes of its column.
        unit_bytes: most bytes of a unit.
        minimum: least number of units.
        least: elements that a unit should have, even if there are fewer units then.
    """
    kept = count > 0
    file, part, count, size = file[kept], part[kept], count[kept], size[kept]
    most = np.maximum(1, count // least)
    pieces = np.clip(-(-size // unit_bytes), 1, most)
    if pieces.sum() < minimum and len(count):
        pieces = np.maximum(pieces, np.minimum(most, -(-count // _longest_unit(count, pieces, minimum))))
    which = np.repeat(np.arange(len(count)), pieces)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = count[which] * piece // pieces[which]
    end = count[which] * (piece + 1) // pieces[which]
    share = (size[which].astype(np.float64) * ((end - first) / count[which])).astype(np.int64)
    return (
        file[which].astype(np.int32),
        part[which].astype(np.int32),
        first.astype(np.int64),
        (end - first).astype(np.int64),
        share,
    )


def _longest_unit(count: np.ndarray, parts: np.ndarray, minimum: int) -> int:
    """The largest limit for the elements of a unit that gives at least `minimum` units; 1: none does."""
    low, high = 1, int(count.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.maximum(parts, -(-count // middle)).sum() >= minimum:
            low = middle
        else:
            high = middle - 1
    return low
