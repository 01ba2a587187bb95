"""Decompresses files up to a limit, so that a small file cannot use up a host's memory.

A file is refused that becomes larger than `maxUnpackedBytes`, or larger than 256 MiB and more than 200 times its size:
text compresses 3 to 20 times. A single line or record may have a quarter of `maxUnpackedBytes`, even if nothing is
compressed: a sparse file takes no space on its disk.
"""

import gzip
import io
import re
import zlib
from typing import Any

import pyarrow as pa

from tpujob_trainer.data.column import MEBIBYTE, Column
from tpujob_trainer.storage.versions import PATH, DataChangedError
from tpujob_trainer.values.errors import ConfigurationError

FREE_BYTES = 256 * MEBIBYTE
"""The size that any file may reach within `maxUnpackedBytes`."""
MOST_TIMES = 200
"""How many times its compressed size a larger file may reach."""
EXPANSION = 4
"""Bytes of text per compressed byte, a typical value for web text."""
_CHUNK = MEBIBYTE


_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OTHERS = {rb"BZh[1-9]1AY&SY": "bzip2", rb"\xfd7zXZ\x00": "xz", rb"PK\x03\x04": "zip", rb"\x04\x22\x4d\x18": "lz4"}


def codec_of(start: bytes, name: str) -> str | None:
    """The compression of a file by its first bytes, whatever its name is: gzip, zstd, or None.

    Raises:
        ConfigurationError: it is another one.
    """
    for pattern, codec in _OTHERS.items():
        if re.match(pattern, start):
            raise ConfigurationError(
                f"{PATH}: {name!r} is compressed with {codec}; write it with gzip or zstd, or uncompressed"
            )
    return next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)


class UnpackedTooLargeError(ConfigurationError):
    """A file becomes larger than allowed."""


def most_bytes(packed: int, column: Column) -> int:
    """The most bytes that `packed` compressed bytes may become."""
    return min(column.max_unpacked_bytes, max(FREE_BYTES, MOST_TIMES * packed))


def too_large(name: str, packed: int, limit: int, column: Column) -> UnpackedTooLargeError:
    """The error about a file of `packed` bytes that becomes larger than `limit`."""
    source = column.field.rpartition(".")[0]
    remedy = (
        f"divide the file, or raise {source}.maxUnpackedBytes"
        if limit == column.max_unpacked_bytes
        else f"text does not grow {MOST_TIMES} times: leave the file out, or write it uncompressed"
    )
    return UnpackedTooLargeError(
        f"{PATH}: {name!r} has {packed} bytes and becomes more than {limit} when it is unpacked; {remedy}"
    )


def require_row(name: str, at: int, length: int, column: Column) -> None:
    """Checks that a line or record, at or after a byte of a file, is not too long to be held in memory.

    Raises:
        ConfigurationError: it is longer than a quarter of `maxUnpackedBytes`.
    """
    most = column.max_unpacked_bytes // 4
    if length > most:
        source = column.field.rpartition(".")[0]
        raise ConfigurationError(
            f"{PATH}: {name!r}: a row behind byte {at} has more than {most} bytes; divide it, or raise "
            f"{source}.maxUnpackedBytes, of which a row may have a quarter"
        )


class LimitedStream(io.RawIOBase):
    """The decompressed content of a file, read from its beginning.

    Reading raises UnpackedTooLargeError beyond the limit, and the codec's errors for a damaged file: OSError, EOFError,
    zlib.error, ArrowException.
    """

    def __init__(self, packed: bytes, codec: str | None, name: str, column: Column) -> None:
        """Nothing is read yet.

        Args:
            packed: The file.
            codec: gzip, zstd, or None for a file that is not compressed.
            name: Of the file, in messages.
            column: With the limit.
        """
        self._name = name
        self._packed = len(packed)
        self._column = column
        self._limit = most_bytes(len(packed), column) if codec else len(packed)
        self._read = 0
        self._stream: Any = io.BytesIO(packed)
        if codec == "gzip":
            self._stream = gzip.GzipFile(fileobj=self._stream)
        elif codec == "zstd":
            self._stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer at the end; all that is left if it is negative."""
        pieces: list[bytes] = []
        left = self._limit + 1 if size < 0 else size
        while left > 0 and (piece := self._stream.read(min(left, _CHUNK))):
            self._read += len(piece)
            left -= len(piece)
            if self._read > self._limit:
                raise too_large(self._name, self._packed, self._limit, self._column)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def unpacked(packed: bytes, codec: str | None, name: str, column: Column) -> bytes:
    """The whole decompressed content of a file.

    Raises:
        UnpackedTooLargeError: it is larger than allowed, compressed or not.
        DataChangedError: it cannot be decompressed.
    """
    if codec is None and len(packed) > column.max_unpacked_bytes:
        raise too_large(name, len(packed), column.max_unpacked_bytes, column)
    try:
        return LimitedStream(packed, codec, name, column).read()
    except (zlib.error, OSError, pa.ArrowException, EOFError) as error:
        raise DataChangedError(f"{name!r} cannot be decompressed: {error}") from error
