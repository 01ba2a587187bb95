"""Detects that a file on a disk was replaced or changed, by its inode, size, times, and samples of its content.

Inode and times are compared at each open, and again after each use. If they differ, the samples decide: the file may
have been moved, or be on a disk of another host. Files of up to a mebibyte are sampled as a whole. A larger one that
was written to in place is refused, because an edit may be between the samples.
"""

from __future__ import annotations

import dataclasses
import os
import threading

import xxhash

from tpujob_trainer.data.sources.changes import DataChangedError, changed

SAMPLES = 16
SAMPLE_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class FileStatus:
    """The status of a file in its file system; changes with every write and every replacement."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, place: str | int) -> FileStatus:
        """The status of a path or a descriptor."""
        found = os.stat(place)  # noqa: PTH116 - also of a descriptor
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def __str__(self) -> str:
        return "-".join(f"{value:x}" for value in dataclasses.astuple(self))


def sampled_version(location: str) -> str:
    """The version of a file for the manifest: its status and a digest of samples."""
    descriptor = os.open(location, os.O_RDONLY)
    try:
        return f"{FileStatus.of(descriptor)}-{_samples(descriptor)}"
    finally:
        os.close(descriptor)


def is_of_status(version: str, status: str) -> bool:
    """Whether the version of a manifest, or of a listing without samples, belongs to a file with this status."""
    return status in (version, version.rpartition("-")[0])


class AcceptedFiles:
    """The files that this process has compared with their versions; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accepted: dict[tuple[str, str], FileStatus] = {}

    def require(self, location: str, descriptor: int, version: str, name: str) -> FileStatus:
        """The status of an open file, after a check that it has a version.

        Args:
            location: Its path.
            descriptor: Of the open file.
            version: As `sampled_version` wrote it; empty in manifests of earlier releases: the file must stay as it was
                when it was opened first.
            name: In the message.

        Raises:
            DataChangedError: it is another file, or was written to.
        """
        now = FileStatus.of(descriptor)
        with self._lock:
            accepted = self._accepted.get((location, version))
        if now == accepted or (version and is_of_status(version, str(now))):
            return now
        problem = _difference(version, now, descriptor) if version else _change(accepted, now)
        if problem:
            raise DataChangedError(changed(name, problem))
        with self._lock:
            self._accepted[location, version] = now
        return now


def _difference(version: str, now: FileStatus, descriptor: int) -> str:
    """How an open file differs from a version; empty if its content is the same."""
    inode, size, mtime, _ctime, *samples = version.split("-")
    if now.size != int(size, 16):
        return f"its size was {int(size, 16)} bytes, now {now.size}"
    if samples != [_samples(descriptor)]:
        return "its content is another one"
    if now.inode == int(inode, 16) and now.mtime_ns != int(mtime, 16) and now.size > SAMPLES * SAMPLE_BYTES:
        return "it was written to"
    return ""


def _change(before: FileStatus | None, now: FileStatus) -> str:
    if before is None or (before.inode, before.size, before.mtime_ns) == (now.inode, now.size, now.mtime_ns):
        return ""
    return f"its size was {before.size} bytes, now {now.size}" if before.size != now.size else "it was replaced"


def _samples(descriptor: int) -> str:
    """A digest, 16 hexadecimal digits, of evenly spaced parts of a file, or of all of a small one."""
    size = os.fstat(descriptor).st_size
    digest = xxhash.xxh3_64()
    if size <= SAMPLES * SAMPLE_BYTES:
        starts = range(0, size, SAMPLE_BYTES)
    else:
        starts = range(0, size - SAMPLE_BYTES + 1, (size - SAMPLE_BYTES) // (SAMPLES - 1))
    for start in starts:
        digest.update(os.pread(descriptor, SAMPLE_BYTES, start))
    return digest.hexdigest()
