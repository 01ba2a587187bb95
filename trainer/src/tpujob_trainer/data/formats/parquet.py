"""Parquet: a part is a row group; only the requested column is read.

Parquet has no access to the middle of a row group. One that was cut into several units is read whole and cached if it
is small (up to 64 MiB of text each, 256 MiB together); else each unit streams it from its beginning.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import most_bytes, too_large
from tpujob_trainer.data.formats.values import require_kind
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.data.sources.footers import Footer, read_footer, require_digest
from tpujob_trainer.storage.errors import is_out_of_reach
from tpujob_trainer.storage.versions import damaged
from tpujob_trainer.values.errors import ConfigurationError, message

_STREAM_BYTES = 4 << 20
_SHARED_GROUP_BYTES = 64 << 20
_SHARED_BYTES = 256 << 20
_SAMPLED_ROWS = 1024
_NUMBER_BYTES, _DICTIONARY_BYTES, _SHORT_BYTES = 4, 5 << 18, 256
"""A row group stores repeated texts once, and rows as their numbers, until there is a mebibyte of such texts. If that
may be all of a row group, and its rows look short, some are read to find how long they are."""


class Parquet:
    """Files of Apache Parquet."""

    name = "parquet"
    suffixes = FILE_ENDINGS["parquet"]
    elements = "rows"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """Row groups, from the footer: one read in most cases."""
        footer = read_footer(root, file, is_listed=True)
        leaves = _leaves(footer, root.locate(file.path), column)
        counts, sizes = [], []
        for number in range(footer.metadata.num_row_groups):
            group = footer.metadata.row_group(number)
            counts.append(group.num_rows)
            sizes.append(sum(group.column(leaf).total_uncompressed_size for leaf in leaves))
            _require_fitting(group, leaves, root.locate(file.path), column)
        found = FileScan(footer.digest, np.array(counts, dtype=np.int64), np.array(sizes, dtype=np.int64))
        numbered = np.flatnonzero(
            (found.counts >= _SAMPLED_ROWS)
            & (found.sizes < _DICTIONARY_BYTES + _NUMBER_BYTES * found.counts)
            & (found.sizes < _SHORT_BYTES * found.counts)
        )
        if len(numbered) and _has_dictionary(footer, int(numbered[0]), leaves):
            rows = OpenedParquet(root, file, footer, column).sample(int(numbered[0]), _SAMPLED_ROWS)
            guess = found.counts[numbered] * (rows.nbytes // len(rows))
            found.sizes[numbered] = np.maximum(found.sizes[numbered], guess)
        return found

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedParquet:
        """The file, checked by its footer, which each process reads again to notice changes during a run."""
        footer = read_footer(root, file, is_listed=False)
        require_digest(file.path, footer.digest, digest)
        return OpenedParquet(root, file, footer, column)


class OpenedParquet:
    """Row groups of one file."""

    def __init__(self, root: DataRoot, file: DataFile, footer: Footer, column: Column) -> None:
        self._root = root
        self._file = file
        self._metadata = footer.metadata
        self._digest = footer.digest
        self._column = column
        self._leaves = _leaves(footer, root.locate(file.path), column)

    def read(self, part: int, first: int, count: int) -> RawRows:
        """Rows of a row group."""
        group = self._metadata.row_group(part)
        if count == group.num_rows:
            return RawRows(self._read_group(part))
        size = sum(group.column(leaf).total_uncompressed_size for leaf in self._leaves)
        if size <= _SHARED_GROUP_BYTES:
            self._root.require_unchanged(self._file)
            key = (self._root.locate(self._file.path), self._file.version, self._digest, part, self._column.name)
            return RawRows(_SHARED.take(key, lambda: self._read_group(part)).slice(first, count))
        return RawRows(self._stream(part, first, count))

    @property
    def _names(self) -> list[str]:
        return list(self._column.names)

    def _of(self, batch: Any) -> Any:
        """The column of a batch; for several columns, an array of structs."""
        if self._column.kind != "row":
            return batch.column(0)
        return pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)

    def sample(self, part: int, count: int) -> Any:
        """The first rows of a row group, without dictionary encoding."""
        rows = self._stream(part, 0, count)
        return rows.cast(rows.type.value_type) if pa.types.is_dictionary(rows.type) else rows

    def _read_group(self, part: int) -> Any:
        def rows(parquet: Any) -> Any:
            return pa.chunked_array(
                [self._of(batch) for batch in parquet.read_row_group(part, self._names).to_batches()]
            )

        return self._use(rows, pre_buffer=True)

    def _stream(self, part: int, first: int, count: int) -> Any:
        def rows(parquet: Any) -> Any:
            chunks, at = [], 0
            for batch in parquet.iter_batches(batch_size=min(4096, count), row_groups=[part], columns=self._names):
                begin, end = max(first - at, 0), min(first + count - at, len(batch))
                if begin < end:
                    chunks.append(self._of(batch).slice(begin, end - begin))
                at += len(batch)
                if at >= first + count:
                    break
            return pa.chunked_array(chunks)

        return self._use(rows, buffer_size=_STREAM_BYTES)

    def _use(self, use: Callable[[Any], Any], **options: Any) -> Any:
        with self._root.open_file(self._file) as source:
            try:
                with pq.ParquetFile(source, metadata=self._metadata, **{"pre_buffer": False, **options}) as parquet:
                    return use(parquet)
            except (OSError, pa.ArrowInvalid) as error:
                # pyarrow's error about what it read; errors of storage have a number, a class or words of their own.
                is_numbered = type(error) is not OSError or error.errno is not None
                if isinstance(error, OSError) and (is_numbered or is_out_of_reach(error)):
                    raise
                how = f"a page is damaged ({message(error, 120)})"
                raise ConfigurationError(damaged(self._file.path, how)) from error


class _SharedGroups:
    """A cache of the row groups that several units are cut from, for the most recently used ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: collections.OrderedDict[tuple[str | int, ...], Any] = collections.OrderedDict()

    def take(self, key: tuple[str | int, ...], read: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
                return self._groups[key]
        column = read()
        with self._lock:
            self._groups[key] = column
            while len(self._groups) > 1 and sum(kept.nbytes for kept in self._groups.values()) > _SHARED_BYTES:
                self._groups.popitem(last=False)
        return column


_SHARED = _SharedGroups()


def _require_fitting(group: Any, leaves: list[int], path: str, column: Column) -> None:
    """Checks by the footer that a row group does not become too large."""
    for leaf in leaves:
        chunk = group.column(leaf)
        limit = most_bytes(chunk.total_compressed_size, column)
        if chunk.total_uncompressed_size > limit:
            raise too_large(path, chunk.total_compressed_size, limit, column)


def _has_dictionary(footer: Footer, group: int, leaves: list[int]) -> bool:
    return any(footer.metadata.row_group(group).column(leaf).has_dictionary_page for leaf in leaves)


def _leaves(footer: Footer, path: str, column: Column) -> list[int]:
    """The numbers of the parquet columns that make up the requested ones; none in a file without rows."""
    metadata = footer.metadata
    require_kind(footer.schema, path, column)
    if not metadata.num_row_groups:
        return []
    paths = [metadata.row_group(0).column(at).path_in_schema for at in range(metadata.num_columns)]
    return [at for at, leaf in enumerate(paths) if any(f"{leaf}.".startswith(f"{name}.") for name in column.names)]
