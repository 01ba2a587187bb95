"""The rows of a unit in their shuffled order, without those that cannot be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpujob_trainer.data.formats import RawRows


@dataclass
class RowCounts:
    """Rows by what became of them."""

    used: int = 0
    null: int = 0
    empty: int = 0
    invalid: int = 0
    """Not UTF-8."""

    @property
    def skipped(self) -> int:
        """Rows that gave no token."""
        return self.null + self.empty + self.invalid

    def add(self, other: RowCounts) -> None:
        """Count the other's rows too."""
        self.used += other.used
        self.null += other.null
        self.empty += other.empty
        self.invalid += other.invalid


@dataclass(frozen=True)
class UnitRows:
    """Usable rows of a unit, in the order in which they are trained on."""

    texts: Any
    """Arrow large_string [usable rows], without nulls, a copy of its own."""
    numbers: np.ndarray
    """int64 [usable rows]: the place of each in the shuffled order of all rows of the unit."""
    counts: RowCounts


def usable_rows(raw: RawRows, order: np.ndarray, first: int) -> UnitRows:
    """The rows that can be trained on, from the `first` of a shuffled order on.

    Args:
        raw: of any text or binary type, [rows].
        order: int64 [rows]: which row is the n-th.
        first: rows of the order to leave out.
    """
    shuffled = _as_binary(raw.column).take(pa.array(order[first:]))
    is_null = shuffled.is_null().to_numpy(zero_copy_only=False)
    texts, is_invalid = _as_text(shuffled)
    is_empty = pc.fill_null(pc.equal(pc.binary_length(texts), 0), False).to_numpy(zero_copy_only=False)
    usable = ~(is_null | is_invalid | is_empty)
    counts = RowCounts(int(usable.sum()), int(is_null.sum()), int(is_empty.sum()), int(is_invalid.sum()))
    if counts.skipped:
        texts = texts.filter(pa.array(usable))
    return UnitRows(texts, np.flatnonzero(usable) + first, counts)


def _as_binary(column: Any) -> Any:
    """Text of any Arrow type as one large_binary array."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


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
