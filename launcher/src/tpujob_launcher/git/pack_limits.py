"""Checks the unpacked size of a pack before it is indexed, because indexing inflates each object in memory.

Format of a pack: git-scm.com/docs/gitformat-pack.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO

from dulwich.errors import GitProtocolError

from tpujob_contract.code import MAX_FILES, MAX_UNPACKED_BYTES
from tpujob_launcher.code.archive import CodeRefused

_HEADER_BYTES, _DIGEST_BYTES = 12, 20
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7
_CHUNK = 64 << 10
_MOST_OBJECTS = 4 * MAX_FILES
"""Limit for files, folders, the commit, and other objects that a server sends."""
_MOST_TOTAL_BYTES = 4 * MAX_UNPACKED_BYTES
"""Limit for all objects: a server that cannot omit the history sends it."""


def check_pack(pack: BinaryIO, repository: str) -> None:
    """Checks that the unpacked objects of a pack are within the limits of a job's code.

    Raises:
        CodeRefused: They are not.
        GitProtocolError: The pack is damaged.
    """
    pack.seek(0)
    header = pack.read(_HEADER_BYTES)
    if not header.startswith(b"PACK") or len(header) < _HEADER_BYTES:
        return  # nothing was sent, or it is not a pack, which indexing reports
    count = int.from_bytes(header[8:], "big")
    if count > _MOST_OBJECTS:
        raise CodeRefused(f"spec.code.repository: {repository} sends {count:,} objects, more than {_MOST_OBJECTS:,}")
    reader = _Reader(pack)
    total = 0
    for _ in range(count):
        kind, size = reader.object_header()
        if kind == _OFFSET_DELTA:
            reader.number()
        elif kind == _REFERENCE_DELTA:
            reader.take(_DIGEST_BYTES)
        begin = reader.inflate(size) if size <= MAX_UNPACKED_BYTES else b""
        becomes = max(size, _result_size(begin) if kind in (_OFFSET_DELTA, _REFERENCE_DELTA) else 0)
        total += becomes
        if becomes > MAX_UNPACKED_BYTES or total > _MOST_TOTAL_BYTES:
            raise CodeRefused(
                f"spec.code.repository: what {repository} sends becomes more than {MAX_UNPACKED_BYTES // 1024**2} MiB; "
                "put data into the bucket"
            )


def _result_size(delta: bytes) -> int:
    """The size of the object that a delta produces: the second of the two numbers at its start."""
    at = number = 0
    for _ in range(2):
        number = shift = 0
        while at < len(delta):
            byte = delta[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
    return number


class _Reader:
    """Reads the objects of a pack one after the other, with a small buffer."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""

    def object_header(self) -> tuple[int, int]:
        """The object's type, and its inflated size."""
        byte = self.take(1)[0]
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            byte = self.take(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise GitProtocolError("the pack that was sent is damaged")
        return kind, size

    def number(self) -> None:
        """Skips a number of variable length."""
        while self.take(1)[0] & 0x80:
            continue

    def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._fill()
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def inflate(self, size: int) -> bytes:
        """The first bytes of an object; reads all of it, and refuses more than `size` inflated bytes."""
        inflater, left, begin = zlib.decompressobj(), size, b""
        try:
            while not inflater.eof:
                if not self._buffer:
                    self._fill()
                data = inflater.decompress(self._buffer, _CHUNK)
                self._buffer = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                left -= len(data)
                begin = begin or data[:32]
                if left < 0:
                    raise GitProtocolError("the pack that was sent is damaged: an object is longer than it says")
        except zlib.error as error:
            raise GitProtocolError("the pack that was sent is damaged") from error
        return begin

    def _fill(self) -> None:
        data = self._file.read(_CHUNK)
        if not data:
            raise GitProtocolError("the pack that was sent ends in the middle")
        self._buffer += data
