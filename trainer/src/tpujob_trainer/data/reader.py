"""The text column of one unit, read from its row group and nothing else."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data.files import DataRoot, explained, open_root
from tpujob_trainer.data.footers import Footer, read_footer
from tpujob_trainer.data.manifest import Manifest, require_footer

_FOOTERS_KEPT = 64
_STREAM_BYTES = 4 << 20
_SHARED_GROUP_BYTES = 64 << 20
_SHARED_BYTES = 256 << 20


class UnitReader:
    """Reads units; may be used by several threads.

    Parquet has no way into the middle of a row group. One that was cut into several units is read whole and kept for a
    while if it is small (up to 64 MiB of text each, 256 MiB together); else each unit streams it from its beginning.
    """

    def __init__(self, manifest: Manifest, root: DataRoot | None = None) -> None:
        self._manifest = manifest
        self._root = root or open_root(manifest.root)
        self._lock = threading.Lock()
        self._footers: collections.OrderedDict[int, Footer] = collections.OrderedDict()
        self._groups: collections.OrderedDict[tuple[int, int], Any] = collections.OrderedDict()

    def read(self, number: int) -> Any:
        """The text column of a unit, an Arrow chunked array [rows] in the order of the file; it may be shared.

        Raises:
            DataChangedError: the file is not the one of the manifest.
            NotFoundError: it is gone, or may no longer be read.
        """
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        with explained(self._root.locate(unit.path)):
            metadata = self._footer(file).metadata
            group_rows = metadata.row_group(unit.row_group).num_rows
            if unit.num_rows == group_rows:
                return self._read_group(file, metadata, unit.row_group)
            if int(self._manifest.unit_num_bytes[number]) * group_rows <= _SHARED_GROUP_BYTES * unit.num_rows:
                return self._shared_group(file, metadata, unit.row_group).slice(unit.first_row, unit.num_rows)
            return self._stream(file, metadata, unit.row_group, unit.first_row, unit.num_rows)

    def _read_group(self, file: int, metadata: Any, row_group: int) -> Any:
        columns = [self._manifest.text_column]
        return self._open(
            file, metadata, lambda parquet: parquet.read_row_group(row_group, columns)[0], pre_buffer=True
        )

    def _shared_group(self, file: int, metadata: Any, row_group: int) -> Any:
        key = (file, row_group)
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
                return self._groups[key]
        column = self._read_group(file, metadata, row_group)
        with self._lock:
            self._groups[key] = column
            while len(self._groups) > 1 and sum(kept.nbytes for kept in self._groups.values()) > _SHARED_BYTES:
                self._groups.popitem(last=False)
        return column

    def _stream(self, file: int, metadata: Any, row_group: int, first: int, count: int) -> Any:
        def rows(parquet: Any) -> Any:
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

        return self._open(file, metadata, rows, buffer_size=_STREAM_BYTES)

    def _open(self, file: int, metadata: Any, use: Callable[[Any], Any], **options: Any) -> Any:
        path, size = self._manifest.paths[file], int(self._manifest.sizes[file])
        with (
            self._root.open(path, size) as source,
            pq.ParquetFile(source, metadata=metadata, **{"pre_buffer": False, **options}) as parquet,
        ):
            return use(parquet)

    def _footer(self, file: int) -> Footer:
        """The footer, read again by each process: a file that changed under a run is noticed before it is used."""
        with self._lock:
            if file in self._footers:
                self._footers.move_to_end(file)
                return self._footers[file]
        footer = read_footer(self._root, self._manifest.paths[file], int(self._manifest.sizes[file]), is_listed=False)
        require_footer(self._manifest, file, footer)
        with self._lock:
            self._footers[file] = footer
            while len(self._footers) > _FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return footer
