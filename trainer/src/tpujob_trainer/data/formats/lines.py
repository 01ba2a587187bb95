"""Files of lines: JSON lines and plain text.

An element is a byte: the rows of a range are the lines that begin in it. The starts need not be found first, and a
range costs one read of it and of the rest of its last line. A compressed file, and JSON that has no object on each line
(an array, objects over several lines), can only be read from its beginning: it is one element, in memory as a whole.
"""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tpujob_contract.file_names import FILE_ENDINGS, SAMPLE_BYTES, why_not_text
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import beyond, read_ends, read_range, read_whole, require_content
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import EXPANSION, codec_of, require_row, unpacked
from tpujob_trainer.data.formats.values import BROKEN, rows_of_values, value_of_json, value_of_object
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.storage.versions import PATH, DataChangedError, changed, damaged
from tpujob_trainer.values.errors import ConfigurationError

BOM = b"\xef\xbb\xbf"
_BETWEEN = re.compile(r"[\s,]*")
_QUICK_BYTES = 1 << 30
"""The largest text that Arrow reads at once: its offsets in a block have 32 bits."""


class _Lines(abc.ABC):
    """Files of lines."""

    elements = "bytes"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part, whose elements are its bytes, or one element if it can only be read whole."""
        digest, start = read_ends(root, file, is_listed=True)
        codec = _codec(start, root.locate(file.path))
        counts = [1 if codec or self.is_whole(start) else file.size]
        sizes = [file.size * EXPANSION if codec else file.size]
        return FileScan(digest, np.array(counts, dtype=np.int64), np.array(sizes, dtype=np.int64))

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedLines:
        """The file, checked by its size and both of its ends."""
        start = require_content(root, file, digest)
        codec = _codec(start, root.locate(file.path))
        return OpenedLines(root, file, column, self, codec, is_whole=codec is not None or self.is_whole(start))

    def is_whole(self, start: bytes) -> bool:
        """Whether a file that starts with this text has rows that are not lines."""
        return False

    @abc.abstractmethod
    def rows(self, text: bytes, column: Column) -> RawRows:
        """The rows of whole lines."""

    def rows_of_file(self, text: bytes, column: Column, name: str) -> RawRows:
        """The rows of a whole file."""
        return self.rows(text, column)


class JsonLines(_Lines):
    """A JSON object on each line, empty lines are skipped; or an array of objects, or objects over several lines."""

    name = "jsonl"
    suffixes = FILE_ENDINGS["jsonl"]

    def is_whole(self, start: bytes) -> bool:
        return is_json_document(start)

    def rows_of_file(self, text: bytes, column: Column, name: str) -> RawRows:
        if not is_json_document(text[: 64 << 10]):
            return self.rows(text, column)
        try:
            return rows_of_values([value_of_object(each, column) for each in _objects(text)], column)
        except ValueError as error:
            raise ConfigurationError(
                f"{PATH}: {name!r} is JSON with a mistake ({error}); write an array of objects, or one on each line"
            ) from error

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

    def __init__(
        self, root: DataRoot, file: DataFile, column: Column, lines: _Lines, codec: str | None, *, is_whole: bool
    ) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._lines = lines
        self._codec = codec
        self._is_whole = is_whole

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of the lines that begin in a range of bytes, or of the whole file."""
        name = self._root.locate(self._file.path)
        if self._is_whole:
            text = unpacked(read_whole(self._root, self._file), self._codec, name, self._column)
        else:
            text = self._lines_from(first, first + count)
        if _is_utf16(text):
            raise ConfigurationError(f"{PATH}: {name!r} looks like UTF-16 or UTF-32; write it as UTF-8")
        if self._is_whole:
            return self._lines.rows_of_file(text, self._column, name)
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


def _codec(start: bytes, name: str) -> str | None:
    """The compression of a file by its first bytes; its name may say more than is true, if the content is text."""
    codec = codec_of(start, name)
    if codec is None and name.lower().endswith((".gz", ".zst")) and why_not_text("", start[:SAMPLE_BYTES]):
        raise ConfigurationError(damaged(name, "it is neither compressed, as its name says, nor text"))
    return codec


def is_json_document(start: bytes) -> bool:
    """Whether text starts as JSON that has no object on each line: an array, or objects over lines or with commas."""
    text = start.removeprefix(BOM).lstrip()
    line, _, rest = text.partition(b"\n")
    if text.startswith(b"["):
        return text[1:].lstrip()[:1] in (b"{", b"]") and not (rest.strip() and _is_json(line))
    if not text.startswith(b"{") or _is_json(line):
        return False
    if line.strip() == b"{":
        return True
    try:
        _, end = json.JSONDecoder().raw_decode(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return text.decode(errors="replace")[end:].lstrip(" \t\r\n,")[:1] in ("{", "")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _objects(text: bytes) -> Iterator[Any]:
    """The objects of an array, or that follow each other; BROKEN for what is no object.

    Raises:
        ValueError: the rest is not JSON.
    """
    document, decoder = text.removeprefix(BOM).decode(), json.JSONDecoder()
    at = _after(document, 0)
    is_array = document.startswith("[", at)
    at = _after(document, at + is_array)
    while at < len(document) and not (is_array and document[at] == "]"):
        try:
            record, at = decoder.raw_decode(document, at)
        except RecursionError as error:
            raise ValueError(f"it is nested too deeply at character {at}") from error
        yield record if isinstance(record, dict) else BROKEN
        at = _after(document, at)
    if is_array and document[at:].strip() != "]":
        raise ValueError(f"no end of the array, or more after it, at character {at}")


def _after(document: str, at: int) -> int:
    """The place after spaces and commas."""
    found = _BETWEEN.match(document, at)
    return found.end() if found else at


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
