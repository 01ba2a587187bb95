"""Array record files: Riegeli chunks of records, and a footer with their offsets.

Formats: doc/riegeli_records_file_format.md in google/riegeli, cpp/layout.proto in google/array_record. Transposed
chunks cannot be read; writers of array records make them only on request. The library of array records (0.8.6) reads a
missing file as one without records, and supports none of fsspec's file systems.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import read_range
from tpujob_trainer.data.formats.examples import fields, value_of_record, varint
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import most_bytes, too_large
from tpujob_trainer.data.formats.values import rows_of_values
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained
from tpujob_trainer.storage.versions import DataChangedError, changed, damaged
from tpujob_trainer.values.errors import ConfigurationError, brief

_BLOCK = 1 << 16
_BLOCK_HEADER = 24
_CHUNK_HEADER = 40
_MAGIC = 0x71930E704FDAE05E
_CODECS = {ord("b"): "brotli", ord("z"): "zstd"}


class ArrayRecord:
    """Files of tf.train.Example or JSON records."""

    name = "arrayrecord"
    suffixes = FILE_ENDINGS["arrayrecord"]
    elements = "rows"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part, whose elements are the records."""
        index = _read_index(root, file, column, is_listed=True)
        size = np.array([index.decoded_bytes], dtype=np.int64)
        return FileScan(index.digest, np.array([index.num_records], dtype=np.int64), size)

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedChunks:
        """The file, checked by its footer and both ends of its records."""
        index = _read_index(root, file, column, is_listed=False)
        if index.digest != digest:
            raise DataChangedError(changed(file.path, "its footer is another one"))
        return OpenedChunks(root, file, column, index)


class _Index:
    """The offsets of the chunks of a file."""

    def __init__(self, content: bytes, records: list[bytes], footer_offset: int) -> None:
        # The footer has only sizes: the digest also covers both ends of the records.
        self.digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        chunks = [dict(fields(record)) for record in records]
        self.offsets = np.array([*(chunk.get(1, 0) for chunk in chunks), footer_offset], dtype=np.int64)
        counts = np.array([chunk.get(3, 0) for chunk in chunks], dtype=np.int64)
        self.first_records = np.concatenate([[0], np.cumsum(counts)])
        self.num_records = int(self.first_records[-1])
        self.decoded_bytes = sum(int(chunk.get(2, 0)) for chunk in chunks)


class OpenedChunks:
    """Records of one file."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column, index: _Index) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._index = index

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of a range of records, by one read of the chunks that hold them."""
        index = self._index
        begin = int(np.searchsorted(index.first_records, first, side="right")) - 1
        end = int(np.searchsorted(index.first_records, first + count, side="left"))
        start, stop = int(index.offsets[begin]), int(index.offsets[end])
        with self._root.open_file(self._file) as opened:
            data = memoryview(read_range(opened, start, stop))
        if len(data) != stop - start:
            raise DataChangedError(changed(self._file.path, f"it ends after {start + len(data)} bytes"))
        records: list[bytes] = []
        for chunk in range(begin, end):
            at = int(index.offsets[chunk])
            records += self._chunk(data[at - start :], at)
        skip = first - int(index.first_records[begin])
        wanted = records[skip : skip + count]
        if len(wanted) != count:
            raise DataChangedError(changed(self._file.path, f"it has not the {count} records from {first} on"))
        return rows_of_values([value_of_record(record, self._column) for record in wanted], self._column)

    def _chunk(self, data: memoryview, at: int) -> list[bytes]:
        try:
            return _records(data, at, self._root.locate(self._file.path), self._column)
        except (ValueError, IndexError, pa.ArrowException) as error:
            raise ConfigurationError(
                damaged(self._file.path, f"the chunk at byte {at} is damaged ({brief(error)})")
            ) from error


def _read_index(root: DataRoot, file: DataFile, column: Column, *, is_listed: bool) -> _Index:
    name = root.locate(file.path)
    with (
        explained(name),
        root.open_to_check(file, is_listed=is_listed) as opened,
    ):
        length = opened.seek(0, 2)
        if length != file.size:
            raise DataChangedError(changed(file.path, f"its size was {file.size} bytes, now {length}"))
        if length < _BLOCK:
            raise ConfigurationError(_not_one(name))
        try:
            (postscript,) = _records(read_range(opened, length - _BLOCK, length), length - _BLOCK, name, column)[:1]
            facts = dict(fields(postscript))
            offset = facts.get(1)
            if facts.get(2) != _MAGIC or not isinstance(offset, int):
                raise ConfigurationError(_not_one(name))
            footer = read_range(opened, offset, length - _BLOCK)
            _metadata, *chunks = _records(footer, offset, name, column)
            ends = read_range(opened, 0, min(_BLOCK, offset)) + read_range(opened, max(0, offset - _BLOCK), offset)
        except (ValueError, IndexError, pa.ArrowException) as error:
            raise ConfigurationError(_not_one(name)) from error
    return _Index(footer + ends, chunks, offset)


def _records(data: bytes | memoryview, position: int, name: str, column: Column) -> list[bytes]:
    """The records of the chunk at the beginning of `data`, which is at `position` in the file."""
    at = 0

    def take(size: int) -> bytes:
        """The next bytes of the chunk, without the headers of blocks in between."""
        nonlocal at
        pieces = []
        while size:
            if (position + at) % _BLOCK == 0:
                at += _BLOCK_HEADER
            piece = data[at : at + min(size, _BLOCK - (position + at) % _BLOCK)]
            if not piece:
                raise IndexError("a chunk is cut off")
            pieces.append(piece)
            at += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    header = take(_CHUNK_HEADER)
    data_size = int.from_bytes(header[8:16], "little")
    kind, num_records = header[24:25], int.from_bytes(header[25:32], "little")
    if kind != b"r":
        raise ConfigurationError(
            f"spec.trainer.data.path: {name!r} has a chunk of kind {kind!r} at byte {position}; only simple chunks can "
            "be read: write the file again without transpose"
        )
    chunk = take(data_size)
    size, begin = varint(chunk, 1)
    sizes = _decompressed(chunk[begin : begin + size], chunk[0], name, column)
    values = _decompressed(chunk[begin + size :], chunk[0], name, column)
    records, of_sizes, of_values = [], 0, 0
    for _ in range(num_records):
        length, of_sizes = varint(sizes, of_sizes)
        records.append(values[of_values : of_values + length])
        of_values += length
    if of_values != len(values):
        raise ValueError("the records of a chunk do not add up")
    return records


def _decompressed(data: bytes, codec: int, name: str, column: Column) -> bytes:
    if not codec:
        return data
    if codec not in _CODECS:
        raise ValueError(f"compression {codec}")
    size, begin = varint(data, 0)
    if not size:
        return b""
    limit = most_bytes(len(data), column)
    if size > limit:
        raise too_large(name, len(data), limit, column)
    try:
        unpacked: Any = pa.decompress(data[begin:], size, codec=_CODECS[codec], asbytes=True)
    except OSError as error:
        raise ValueError(str(error)) from error
    return bytes(unpacked)


def _not_one(name: str) -> str:
    return f"spec.trainer.data.path: {name!r} is not an array record file, or is cut off; leave it out or replace it"
