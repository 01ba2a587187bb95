"""Digests and bytes of files without a footer."""

import hashlib
from typing import Any, NamedTuple

from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained
from tpujob_trainer.storage.versions import DataChangedError, changed

_ENDS_BYTES = 64 << 10
_LEAST_BEYOND_BYTES, _MOST_BEYOND_BYTES = 4 << 10, 64 << 10


class Content(NamedTuple):
    """What two reads of a file give."""

    digest: str
    """32 hexadecimal digits, of its size, its first and its last 64 KiB."""
    start: bytes
    """Its first 64 KiB."""


def read_ends(root: DataRoot, file: DataFile, *, is_listed: bool) -> Content:
    """The digest and the start of a file, by at most two reads.

    An edit in place between these that keeps the size is detected only by the file's version.

    Args:
        root: of the data.
        file: with the expected size.
        is_listed: the size was just read from the storage; else the storage is asked.

    Raises:
        DataChangedError: the file has another size.
        NotFoundError: it is not there, or may not be read.
    """
    with (
        explained(root.locate(file.path)),
        root.open_to_check(file, is_listed=is_listed) as opened,
    ):
        length = opened.seek(0, 2)
        if length != file.size:
            raise DataChangedError(changed(file.path, f"its size was {file.size} bytes, now {length}"))
        digest = hashlib.blake2b(str(length).encode(), digest_size=16)
        start = b""
        if length:
            start = read_range(opened, 0, min(length, _ENDS_BYTES))
            digest.update(start)
            if length > _ENDS_BYTES:
                digest.update(read_range(opened, max(_ENDS_BYTES, length - _ENDS_BYTES), length))
    return Content(digest.hexdigest(), start)


def require_content(root: DataRoot, file: DataFile, digest: str) -> bytes:
    """The first 64 KiB of a file, after a check that it has this digest.

    Raises:
        DataChangedError: it has another one.
        NotFoundError: it is not there, or may not be read.
    """
    found = read_ends(root, file, is_listed=False)
    if found.digest != digest:
        raise DataChangedError(changed(file.path, "its content is another one"))
    return found.start


def read_range(opened: Any, start: int, end: int) -> bytes:
    """Bytes [start, end) of an open file; fewer if it ends before."""
    opened.seek(start)
    data: bytes = opened.read(end - start)
    return data


def beyond(num_bytes: int) -> int:
    """How many bytes are read at once past a range, for the row that ends there: 1/64 of the range, 4 to 64 KiB."""
    return min(_MOST_BEYOND_BYTES, max(_LEAST_BEYOND_BYTES, num_bytes // 64))


def read_whole(root: DataRoot, file: DataFile) -> bytes:
    """All bytes of a file.

    Raises:
        DataChangedError: it is shorter than it was.
    """
    with root.open_file(file) as opened:
        data: bytes = opened.read(file.size)
    if len(data) != file.size:
        raise DataChangedError(changed(file.path, f"its size was {file.size} bytes, now {len(data)}"))
    return data
