"""The regular members of a tar, read once from its beginning.

Stricter than `tarfile`, which accepts a tar that is cut off after a member or in a header, fills holes of sparse
members with as many zeros as a header states, and reads headers of any size.
"""

import tarfile
from collections.abc import Callable, Iterator
from typing import Protocol

BLOCK = 512
MOST_HEADER_BYTES = 64 << 10
"""The most for a long name, or for the extended header of one member."""
_CHUNK = 1 << 20
_SPARSE = "sparse members cannot be read; write the tar without --sparse"


class Stream(Protocol):
    """The stream that members are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """`size` bytes; fewer at the end."""


class TarError(ValueError):
    """A stream is not a tar, is cut off, or has something that is refused."""


class UnsupportedTarError(TarError):
    """A tar has something that is not supported: a sparse member, or a header that is too large."""


def read_members(stream: Stream, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None]]:
    """Name and content of each regular member; None for the content of those that are not wanted.

    Raises:
        TarError: the rest of the stream is not a tar, or it ends before its end-of-archive block.
    """
    long_name, size_there = "", None
    at = 0
    while True:
        block = stream.read(BLOCK)
        if not block and not at:
            return  # an empty file has no rows
        if len(block) == BLOCK and not block.strip(b"\0"):
            return
        header = _header(block, at)
        at += BLOCK
        size = header.size if size_there is None else size_there
        if header.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE):
            facts = _extended(_exactly(stream, header.size, at, MOST_HEADER_BYTES))
            if header.type != tarfile.XGLTYPE:
                long_name = facts.get("path", long_name)
                size_there = int(facts["size"]) if facts.get("size", "").isdecimal() else None
            at += _padded(header.size)
        elif header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            content = _exactly(stream, header.size, at, MOST_HEADER_BYTES)
            if header.type == tarfile.GNUTYPE_LONGNAME:
                long_name = content.rstrip(b"\0").decode("utf-8", "surrogateescape")
            at += _padded(header.size)
        elif header.type == tarfile.GNUTYPE_SPARSE:
            raise UnsupportedTarError(f"{header.name!r} is a sparse member: {_SPARSE}")
        else:
            name = long_name or header.name
            # As in tarfile: members of unknown types have a body; links, folders and devices have none.
            body = size if header.isreg() or header.type not in tarfile.SUPPORTED_TYPES else 0
            if header.isreg() and is_wanted(name):
                yield name, _exactly(stream, body, at)
            else:
                _skip(stream, body, at)
                if header.isreg():
                    yield name, None
            at += _padded(body)
            long_name, size_there = "", None


def _header(block: bytes, at: int) -> tarfile.TarInfo:
    if len(block) < BLOCK:
        raise TarError(f"it is cut off after {at + len(block)} bytes: it has no end-of-archive block; copy it again")
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise TarError(f"there is no header of a member at byte {at}: {error}") from error


def _extended(content: bytes) -> dict[str, str]:
    """The records of an extended header (POSIX pax): length, key, value."""
    facts, at = {}, 0
    while at < len(content) and content[at : at + 1] != b"\0":
        digits, _, _ = content[at : at + 20].partition(b" ")
        if not digits.isdigit() or not 0 < int(digits) <= len(content) - at:
            raise TarError("an extended header is damaged")
        record = content[at + len(digits) + 1 : at + int(digits) - 1]
        key, _, value = record.partition(b"=")
        facts[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at += int(digits)
    if any(key.startswith("GNU.sparse") for key in facts):
        raise UnsupportedTarError(_SPARSE)
    return facts


def _exactly(stream: Stream, size: int, at: int, most: int | None = None) -> bytes:
    if size < 0:
        raise TarError(f"the member at byte {at} has a size of {size}")
    if most is not None and size > most:
        raise UnsupportedTarError(f"the header at byte {at} has {size} bytes; {most} are allowed")
    pieces, left = [], _padded(size)
    while left:
        piece = stream.read(min(left, _CHUNK))
        if not piece:
            raise TarError(f"it is cut off in a member, {left} bytes before its end; copy it again")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)[:size]


def _skip(stream: Stream, size: int, at: int) -> None:
    left = _padded(size)
    while left:
        piece = stream.read(min(left, _CHUNK))
        if not piece:
            raise TarError(f"it is cut off in the member at byte {at}; copy it again")
        left -= len(piece)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
