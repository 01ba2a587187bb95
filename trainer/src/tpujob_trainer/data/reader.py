"""The texts of one unit, read from its row group and nothing else."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tpujob_trainer.data.files import DataRoot, explained, open_root
from tpujob_trainer.data.footers import Footer, read_footer
from tpujob_trainer.data.manifest import Manifest, require_footer

_FOOTERS_KEPT = 64
_STREAM_BYTES = 1 << 20
_SHARED_GROUP_BYTES = 64 << 20
_SHARED_BYTES = 256 << 20


@dataclass(frozen=True)
class UnitTexts:
    """The rows of a unit, in the order of the file."""

    texts: Any
    """Arrow large_string [rows]; null where the row has no text or cannot be read as text."""
    is_invalid: np.ndarray
    """bool [rows]: there are bytes, but they are not UTF-8."""


class UnitReader:
    """Reads units; may be used by several threads.

    Row groups that were cut into several units are kept for a while where they are small, and else streamed from their
    beginning: parquet has no way into the middle of a row group.
    """

    def __init__(self, manifest: Manifest, root: DataRoot | None = None) -> None:
        self._manifest = manifest
        self._root = root or open_root(manifest.root)
        self._lock = threading.Lock()
        self._footers: collections.OrderedDict[int, Footer] = collections.OrderedDict()
        self._groups: collections.OrderedDict[tuple[int, int], Any] = collections.OrderedDict()

    def read(self, number: int) -> UnitTexts:
        """The texts of a unit.

        Raises:
            DataChangedError: the file is not the one of the manifest.
            NotFoundError: it is gone, or may no longer be read.
        """
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        with explained(self._root.locate(unit.path)):
            column = self._rows(file, unit.row_group, unit.first_row, unit.num_rows)
        return _checked(_as_large(column))

    def _rows(self, file: int, row_group: int, first: int, count: int) -> Any:
        metadata = self._footer(file).metadata
        group = metadata.row_group(row_group)
        whole = group.num_rows == count
        if not whole and group.total_byte_size > _SHARED_GROUP_BYTES:
            return self._open(file, metadata, lambda parquet: self._stream(parquet, row_group, first, count))
        cached = None if whole else self._kept_group(file, row_group)
        if cached is None:
            cached = self._open(
                file, metadata, lambda parquet: parquet.read_row_group(row_group, [self._manifest.text_column])[0]
            )
            if not whole:
                self._keep_group(file, row_group, cached)
        return cached.slice(first, count)

    def _stream(self, parquet: Any, row_group: int, first: int, count: int) -> Any:
        chunks, at = [], 0
        for batch in parquet.iter_batches(
            batch_size=min(4096, count), row_groups=[row_group], columns=[self._manifest.text_column]
        ):
            begin, end = max(first - at, 0), min(first + count - at, len(batch))
            if begin < end:
                chunks.append(batch.column(0).slice(begin, end - begin))
            at += len(batch)
            if at >= first + count:
                break
        return pa.chunked_array(chunks)

    def _open(self, file: int, metadata: Any, use: Callable[[Any], Any]) -> Any:
        path, size = self._manifest.paths[file], int(self._manifest.sizes[file])
        with (
            self._root.open(path, size) as source,
            pq.ParquetFile(source, metadata=metadata, buffer_size=_STREAM_BYTES, pre_buffer=False) as parquet,
        ):
            return use(parquet)

    def _footer(self, file: int) -> Footer:
        with self._lock:
            if file in self._footers:
                self._footers.move_to_end(file)
                return self._footers[file]
        footer = read_footer(self._root, self._manifest.paths[file], int(self._manifest.sizes[file]))
        require_footer(self._manifest, file, footer)
        with self._lock:
            self._footers[file] = footer
            while len(self._footers) > _FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return footer

    def _kept_group(self, file: int, row_group: int) -> Any | None:
        with self._lock:
            if (file, row_group) in self._groups:
                self._groups.move_to_end((file, row_group))
            return self._groups.get((file, row_group))

    def _keep_group(self, file: int, row_group: int, column: Any) -> None:
        with self._lock:
            self._groups[file, row_group] = column
            while len(self._groups) > 1 and sum(kept.nbytes for kept in self._groups.values()) > _SHARED_BYTES:
                self._groups.popitem(last=False)


def _as_large(column: Any) -> Any:
    """Any array of text as one large_binary array of its own."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary())
    column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _checked(column: Any) -> UnitTexts:
    is_invalid = np.zeros(len(column), dtype=bool)
    try:
        return UnitTexts(column.cast(pa.large_string()), is_invalid)
    except pa.ArrowInvalid:  # some row is not UTF-8: look which
        for row, value in enumerate(column.to_pylist()):
            is_invalid[row] = value is not None and not _is_utf8(value)
    column = pc.if_else(pa.array(is_invalid), pa.scalar(None, pa.large_binary()), column)
    return UnitTexts(column.cast(pa.large_string()), is_invalid)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
