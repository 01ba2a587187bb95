"""Files of lines: JSON lines and plain text.

An element is a byte: the rows of a range are the lines that begin in it. The starts need not be found first, and a
range costs one read of it and of the rest of its last line. A compressed file can only be read from its beginning: it
is one element, and is decompressed in memory as a whole.
"""

from __future__ import annotations

import abc
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tpujob_contract.values.file_endings import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import beyond, content_digest, read_range, read_whole, require_content
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import require_row, unpack
from tpujob_trainer.data.formats.values import rows_of_values, value_of_json
from tpujob_trainer.data.sources.changes import PATH, DataChangedError, changed
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.errors import ConfigurationError

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_QUICK_BYTES = 1 << 30
"""The largest text that Arrow reads at once: its offsets in a block have 32 bits."""
_EXPANSION = 4
"""Bytes of text per compressed byte, a typical value for web text."""


class _Lines(abc.ABC):
    """Files of lines."""

    elements = "bytes"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part, whose elements are its bytes, or one element if it is compressed."""
        digest = content_digest(root, file, is_listed=True)
        if _codec(file.path) is None:
            counts, sizes = [file.size], [file.size]
        else:
            counts, sizes = [min(file.size, 1)], [file.size * _EXPANSION]
        return FileScan(digest, np.array(counts, dtype=np.int64), np.array(sizes, dtype=np.int64))

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedLines:
        """The file, checked by its size and both of its ends."""
        require_content(root, file, digest)
        return OpenedLines(root, file, column, self)

    @abc.abstractmethod
    def rows(self, text: bytes, column: Column) -> RawRows:
        """The rows of whole lines."""


class JsonLines(_Lines):
    """A JSON object on each line; empty lines are skipped."""

    name = "jsonl"
    suffixes = FILE_ENDINGS["jsonl"]

    def rows(self, text: bytes, column: Column) -> RawRows:
        lines = [line for line in text.split(b"\n") if line and not line.isspace()]
        if column.kind == "text":
            found = _quick_texts(text, column.name)
            if found is not None and len(found) == len(lines):
                return RawRows(found)
        return rows_of_values([value_of_json(line, column) for line in lines], column)


class Text(_Lines):
    """A document on each line; empty lines are skipped. The column's name does not matter."""

    name = "text"
    suffixes = FILE_ENDINGS["text"]

    def rows(self, text: bytes, column: Column) -> RawRows:
        lines = [line.removesuffix(b"\r") for line in text.split(b"\n")]
        texts = [line for line in lines if line and not line.isspace()]
        return rows_of_values([{"text": line} for line in texts] if column.kind == "row" else texts, column)


class OpenedLines:
    """Ranges of one file."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column, lines: _Lines) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._lines = lines

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of the lines that begin in a range of bytes."""
        codec = _codec(self._file.path)
        text = self._lines_from(first, first + count) if codec is None else self._decompressed(codec)
        if _is_utf16(text):
            raise ConfigurationError(
                f"{PATH}: {self._root.locate(self._file.path)!r} looks like UTF-16 or UTF-32; write it as UTF-8"
            )
        return self._lines.rows(text, self._column)

    def _lines_from(self, first: int, end: int) -> bytes:
        with self._root.open_file(self._file) as opened:
            begin = max(0, first - 1)  # a line begins here if the byte before ends one
            stop = min(end, self._file.size)
            data = read_range(opened, begin, stop)
            if len(data) != stop - begin:
                raise DataChangedError(changed(self._file.path, f"it ends after {begin + len(data)} bytes"))
            if first > 0:
                newline = data.find(b"\n")
                if newline < 0 or begin + newline + 1 >= end:
                    return b""
                data = data[newline + 1 :]
            pieces, held = [data], len(data)
            while not pieces[-1].endswith(b"\n") and stop < self._file.size:
                more = read_range(opened, stop, min(stop + beyond(end - first), self._file.size))
                stop += len(more)
                newline = more.find(b"\n")
                pieces.append(more if newline < 0 else more[: newline + 1])
                held += len(pieces[-1])
                require_row(self._file.path, first, held - (end - first), self._column)
                if not more:
                    raise DataChangedError(changed(self._file.path, f"it ends after {stop} bytes"))
        return b"".join(pieces)

    def _decompressed(self, codec: str) -> bytes:
        packed = read_whole(self._root, self._file)
        try:
            return unpack(packed, codec, self._root.locate(self._file.path), self._column)
        except (zlib.error, OSError, pa.ArrowException, EOFError) as error:
            raise DataChangedError(f"{self._root.locate(self._file.path)!r} cannot be decompressed: {error}") from error


def _codec(path: str) -> str | None:
    return next((codec for suffix, codec in _CODECS.items() if path.endswith(suffix)), None)


def _is_utf16(text: bytes) -> bool:
    """Whether text starts with the byte order mark of UTF-16, or a quarter of its first bytes are zeros."""
    start = text[:4096]
    return start.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(start) > 1 and start.count(0) * 4 >= len(start))


def _quick_texts(text: bytes, name: str) -> Any:
    """The texts under a key, by Arrow's reader; None: it cannot read them, or there is nothing or too much to read."""
    if len(text) > _QUICK_BYTES or not text.strip():
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(text) + 1)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([(name, pa.large_string())]), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None
    return table[name]
