"""TFRecord files: records that follow each other, each with its length and checksums.

    uint64 length, uint32 masked CRC-32C of the length, data, uint32 masked CRC-32C of the data

An element is a byte: the rows of a range are the records that begin in it. The first of them is found by its checksums,
which match by chance once in 2^64 places. Every checksum is verified. Grain's reader (0.2.18) verifies none, opens only
local paths, and cannot start in the middle of a file.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import google_crc32c
import numpy as np

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import beyond, read_ends, read_range, read_whole, require_content
from tpujob_trainer.data.formats.examples import value_of_record
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import EXPANSION, codec_of, require_row, unpacked
from tpujob_trainer.data.formats.values import rows_of_values
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.storage.versions import DataChangedError, changed, damaged
from tpujob_trainer.values.errors import ConfigurationError

_HEADER = 12
_FOOTER = 4
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
_SEARCH_BYTES = 16 << 10
"""Places that are searched together for the beginning of a record."""


class TFRecord:
    """Files of tf.train.Example or JSON records."""

    name = "tfrecord"
    suffixes = FILE_ENDINGS["tfrecord"]
    elements = "bytes"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part, whose elements are its bytes, or one element if it is compressed."""
        digest, start = read_ends(root, file, is_listed=True)
        size = np.array([file.size], dtype=np.int64)
        if _codec(start, file.path) is None:
            return FileScan(digest, size, size)
        return FileScan(digest, np.array([1], dtype=np.int64), size * EXPANSION)

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedRecords:
        """The file, checked by its size and both of its ends."""
        start = require_content(root, file, digest)
        return OpenedRecords(root, file, column, _codec(start, file.path))


class OpenedRecords:
    """Ranges of one file."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column, codec: str | None = None) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._codec = codec

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of the records that begin in a range of bytes, or of all records of a compressed file."""
        if self._codec is not None:
            records = unpacked(read_whole(self._root, self._file), self._codec, self._file.path, self._column)
            file = dataclasses.replace(self._file, size=len(records))
            return self._read(_Window(io.BytesIO(records), file, 0, len(records)), 0, len(records))
        with self._root.open_file(self._file) as opened:
            return self._read(_Window(opened, self._file, first, first + count), first, first + count)

    def _read(self, window: _Window, first: int, end: int) -> RawRows:
        at = 0 if first == 0 else self._first_record(window, first, end)
        records = []
        while at is not None and at < end:
            record = self._record(window, at)
            records.append(record)
            at += _HEADER + len(record) + _FOOTER
        if at is not None and at < window.size:
            self._record(window, at)  # the next range begins with it: make sure that it is found
        return rows_of_values([value_of_record(record, self._column) for record in records], self._column)

    def _first_record(self, window: _Window, first: int, end: int) -> int | None:
        """The offset of the first record that begins in a range; None: none does."""
        for begin in range(first, end, _SEARCH_BYTES):
            stop = min(begin + _SEARCH_BYTES, end)
            data = np.frombuffer(window.take(begin, min(stop + _HEADER - 1, window.size)), dtype=np.uint8)
            places = len(data) - _HEADER + 1
            if places < 1:
                return None
            for candidate in np.flatnonzero(_is_header(data, places)).tolist():
                at = begin + candidate
                length = int.from_bytes(data[candidate : candidate + 8].tobytes(), "little")
                if at + _HEADER + length + _FOOTER > window.size:
                    continue
                require_row(self._file.path, at, length, self._column)
                if self._is_whole(window, at, length):
                    return at
        return None

    def _record(self, window: _Window, at: int) -> bytes:
        length = self._length(window, at)
        if not self._is_whole(window, at, length):
            raise ConfigurationError(self._damaged(at))
        return window.take(at + _HEADER, at + _HEADER + length)

    def _length(self, window: _Window, at: int) -> int:
        header = window.take(at, min(at + _HEADER, window.size))
        length = int.from_bytes(header[:8], "little")
        ends_inside = at + _HEADER + length + _FOOTER <= window.size
        if len(header) < _HEADER or masked_crc(header[:8]) != int.from_bytes(header[8:], "little") or not ends_inside:
            raise ConfigurationError(self._damaged(at))
        require_row(self._file.path, at, length, self._column)
        return length

    def _is_whole(self, window: _Window, at: int, length: int) -> bool:
        body = window.take(at + _HEADER, at + _HEADER + length + _FOOTER)
        return masked_crc(body[:length]) == int.from_bytes(body[length:], "little")

    def _damaged(self, at: int) -> str:
        return damaged(self._file.path, f"the record at byte {at} is damaged")


class _Window:
    """Bytes of a file, read a range at a time."""

    def __init__(self, opened: Any, file: DataFile, first: int, end: int) -> None:
        self.size = file.size
        self._opened = opened
        self._file = file
        self._first = first
        self._data = b""
        self._beyond = beyond(end - first)
        self._extend(min(end + self._beyond, file.size))

    def take(self, start: int, end: int) -> bytes:
        """Bytes [start, end)."""
        if end > self._first + len(self._data):
            self._extend(min(max(end, self._first + len(self._data) + self._beyond), self._file.size))
        return self._data[start - self._first : end - self._first]

    def _extend(self, end: int) -> None:
        begin = self._first + len(self._data)
        more = read_range(self._opened, begin, end)
        if len(more) != end - begin:
            raise DataChangedError(changed(self._file.path, f"it ends after {begin + len(more)} bytes"))
        self._data += more


def _codec(start: bytes, name: str) -> str | None:
    """The compression of a file; a length with its checksum is a record, whatever its bytes look like."""
    is_record = len(start) >= _HEADER and masked_crc(start[:8]) == int.from_bytes(start[8:_HEADER], "little")
    return None if is_record else codec_of(start, name)


def masked_crc(data: bytes) -> int:
    """TensorFlow's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant (tsl/lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> np.ndarray:
    crc: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return crc


_TABLE = _table()


def _is_header(data: np.ndarray, places: int) -> np.ndarray:
    """Bool [places]: whether the eight bytes at each place have the checksum that follows them."""
    crc: np.ndarray = np.full(places, 0xFFFFFFFF, dtype=np.uint32)
    for byte in range(8):
        crc = _TABLE[(crc ^ data[byte : byte + places]) & 0xFF] ^ (crc >> 8)
    crc ^= np.uint32(0xFFFFFFFF)
    with np.errstate(over="ignore"):
        masked = (crc >> 15 | crc << 17) + np.uint32(_MASK_DELTA)
    given = np.zeros(places, dtype=np.uint32)
    for byte in range(4):
        given |= data[8 + byte : 8 + byte + places].astype(np.uint32) << (8 * byte)
    return masked == given
