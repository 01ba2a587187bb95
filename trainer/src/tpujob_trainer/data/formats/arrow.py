"""Arrow files, streams of record batches as `datasets.save_to_disk` writes them: a part is a batch, an element a row.

The description before each batch says how long it is, so batches are found and counted without reading them. Files of
Arrow's file format have the same stream after their first 8 bytes. https://arrow.apache.org/docs/format/Columnar.html
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import MEBIBYTE, Column
from tpujob_trainer.data.formats.content import read_ends, read_range, require_content
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import too_large
from tpujob_trainer.data.formats.values import require_kind
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.storage.versions import PATH, damaged
from tpujob_trainer.values.errors import ConfigurationError, message

_FILE_MAGIC = b"ARROW1\0\0"
_CONTINUATION = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_SHARED = [_SCHEMA, _DICTIONARY]
_MOST_DESCRIPTION_BYTES = 16 * MEBIBYTE
_READ_BYTES = 16 << 10


class Arrow:
    """Arrow files."""

    name = "arrow"
    suffixes = FILE_ENDINGS["arrow"]
    elements = "rows"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """Record batches, from their descriptions."""
        digest = read_ends(root, file, is_listed=True).digest
        batches = _read_layout(root, file, column).batches
        counts = np.array([batch.rows for batch in batches], dtype=np.int64)
        return FileScan(digest, counts, np.array([batch.end - batch.begin for batch in batches], dtype=np.int64))

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedArrow:
        """The file, checked by its size and both of its ends."""
        require_content(root, file, digest)
        return OpenedArrow(root, file, column, _read_layout(root, file, column))


class OpenedArrow:
    """Record batches of one file."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column, layout: _Layout) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._layout = layout

    def read(self, part: int, first: int, count: int) -> RawRows:
        """Rows of a record batch, which is read whole."""
        batch = self._layout.batches[part]
        wanted = (*(each for each in self._layout.shared if each.end <= batch.begin), batch)
        with self._root.open_file(self._file) as opened:
            stream = b"".join(read_range(opened, each.begin, each.end) for each in wanted)
        names = self._layout.schema.names
        options = pa.ipc.IpcReadOptions(
            included_fields=[names.index(name) for name in self._column.names], use_threads=False
        )
        try:
            rows = pa.ipc.open_stream(pa.BufferReader(stream), options=options).read_next_batch()
            found = rows.column(0)
            if self._column.kind == "row":
                found = pa.StructArray.from_arrays(rows.columns, names=rows.schema.names)
            elif pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
                # A text that is not UTF-8 is one row that cannot be used, not a damaged file.
                found = found.view(pa.binary() if pa.types.is_string(found.type) else pa.large_binary())
            found.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            how = f"a record batch is damaged ({message(error, 120)})"
            raise ConfigurationError(damaged(self._file.path, how)) from error
        return RawRows(found.slice(first, count))


class _Message(NamedTuple):
    """Where a message of the stream is, with its description, and what it holds."""

    begin: int
    end: int
    kind: int
    rows: int
    is_compressed: bool


@dataclass(frozen=True)
class _Layout:
    """The messages of a file."""

    schema: Any
    shared: list[_Message]
    """The schema, and dictionaries, each for the batches after it."""
    batches: list[_Message]


def _read_layout(root: DataRoot, file: DataFile, column: Column) -> _Layout:
    name = root.locate(file.path)
    with root.open_file(file) as opened:
        messages = list(_messages(opened, file, name))
        if not messages or messages[0].kind != _SCHEMA:
            raise _not_arrow(name)
        start = messages[0]
        try:
            schema = pa.ipc.read_schema(pa.BufferReader(read_range(opened, start.begin, start.end)))
            require_kind(schema, name, column)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(damaged(file.path, f"its schema cannot be read ({error})")) from error
    for batch in messages:
        if batch.is_compressed:
            raise ConfigurationError(f"{PATH}: {name!r} has compressed batches; write it uncompressed, or as parquet")
        if batch.end - batch.begin > column.max_unpacked_bytes:
            raise too_large(name, file.size, column.max_unpacked_bytes, column)
    shared, batches = ([each for each in messages if each.kind in kinds] for kinds in (_SHARED, [_BATCH]))
    return _Layout(schema, shared, batches)


def _not_arrow(name: str) -> ConfigurationError:
    return ConfigurationError(f"{PATH}: {name!r} is not an Arrow file; leave it out or replace it")


def _messages(opened: Any, file: DataFile, name: str) -> Iterator[_Message]:
    """The messages up to the end of the stream."""
    reader = io.BufferedReader(opened, _READ_BYTES)
    try:
        begin = len(_FILE_MAGIC) if reader.read(len(_FILE_MAGIC)) == _FILE_MAGIC else 0
        while begin < file.size:
            reader.seek(begin)
            start = reader.read(8)
            if start[:4] != _CONTINUATION:
                raise _not_arrow(name)
            length = int.from_bytes(start[4:], "little")
            if length == 0 and len(start) == 8:
                return
            if length > min(_MOST_DESCRIPTION_BYTES, file.size - begin):
                raise ConfigurationError(damaged(file.path, f"it is cut off at byte {begin}"))
            message = _message(reader.read(length), begin, length, file)
            if message.end > file.size:
                raise ConfigurationError(damaged(file.path, f"it is cut off after byte {begin}"))
            yield message
            begin = message.end
    finally:
        reader.detach()


def _message(description: bytes, begin: int, length: int, file: DataFile) -> _Message:
    """A message by its description, a table of flatbuffers: kind, body (a table with rows), and length of the body."""
    try:
        (table,) = struct.unpack_from("<I", description)
        kind = _number(description, table, 1, "<B")
        batch = _table(description, table, 2)
        if kind == _DICTIONARY:
            batch = _table(description, batch, 1)
        rows = _number(description, batch, 0, "<q") if kind != _SCHEMA else 0
        is_compressed = kind != _SCHEMA and _slot(description, batch, 3) > 0
        size = _number(description, table, 3, "<q")
    except struct.error as error:
        raise ConfigurationError(damaged(file.path, f"byte {begin}: no description of a batch ({error})")) from error
    if rows < 0 or size < 0:
        raise ConfigurationError(damaged(file.path, f"byte {begin}: {rows} rows in {size} bytes"))
    return _Message(begin, begin + 8 + length + size, kind, rows, is_compressed)


def _slot(buffer: bytes, table: int, field: int) -> int:
    """Where a field of a table of flatbuffers is; 0: it has its default."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    (length,) = struct.unpack_from("<H", buffer, vtable)
    at = 4 + 2 * field
    offset: int = struct.unpack_from("<H", buffer, vtable + at)[0] if at < length else 0
    return table + offset if offset else 0


def _table(buffer: bytes, table: int, field: int) -> int:
    at = _slot(buffer, table, field)
    return at + int(struct.unpack_from("<I", buffer, at)[0])


def _number(buffer: bytes, table: int, field: int, kind: str) -> int:
    at = _slot(buffer, table, field)
    number: int = struct.unpack_from(kind, buffer, at)[0] if at else 0
    return number
