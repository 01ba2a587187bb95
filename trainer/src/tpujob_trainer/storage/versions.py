"""Versions of files: recognized on a disk, requested from storage, and the errors about a file that has another one.

On a disk, inode and times are compared at each open, and again after each use. If they differ, samples of the content
decide: the file may have been moved, or be on a disk of another host. Files of up to a mebibyte are sampled as a whole.
A larger one that was written to in place is refused, because an edit may be between the samples.

Cloud Storage reads a generation, Azure and web servers compare an entity tag or a date, and refuse if the object now
has another version. A data set of the Hugging Face hub is read at a commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import fsspec.asyn
import xxhash

from tpujob_trainer.storage.filesystems import has_protocol, is_hub, url_of
from tpujob_trainer.values.errors import ANOTHER_RUN, ConfigurationError, TrainerError

PATH = "spec.trainer.data.path"


@contextlib.contextmanager
def named(block: str) -> Iterator[None]:
    """Lets errors about data name the fields of a block, as of `spec.trainer.evaluation.data.`, that they come from."""
    try:
        yield
    except TrainerError as error:
        error.args = (str(error).replace(PATH.removesuffix("path"), block),)
        raise


class DataChangedError(ConfigurationError):
    """A file of the data set is not the one that this run started with."""


def damaged(path: str, how: str) -> str:
    """The message about a file, a part of which cannot be read."""
    return f"{PATH}: {path!r}: {how}; copy the file again, or leave it out"


def changed(path: str, how: str) -> str:
    """The message about a file that is not the one the run started with."""
    return f"{PATH}: {path!r} has changed since this run began: {how}; put the data back as it was, or {ANOTHER_RUN}"


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


REQUEST_SECONDS = 60.0
"""Time for one range to arrive; then it is requested again."""

type Fetch = Callable[[int, int], bytes]


def version_of(info: dict[str, Any]) -> str:
    """The version of an object, from its entry in a listing; empty: the storage states none."""
    tag = info.get("ETag") or info.get("etag") or ""
    weak = str(tag).startswith("W/")
    found = info.get("generation") or (tag and not weak and tag) or info.get("Last-Modified") or tag
    return str(found or info.get("blob_id") or "")


def fetcher(filesystem: Any, location: str, version: str = "") -> Fetch:
    """A function that requests once the bytes [start, end) of an object, of one version if that is given.

    Asynchronous file systems (gs, az, s3, http) are read with a time limit; the hub without the retries of its own
    client, which do not know of other threads; any other one through a file that it opens.
    """
    if isinstance(filesystem, fsspec.asyn.AsyncFileSystem):
        read = _reading(filesystem, location, version)

        def fetch(start: int, end: int) -> bytes:
            data: bytes = fsspec.asyn.sync(filesystem.loop, read, start, end, timeout=REQUEST_SECONDS)
            return data

        return fetch
    if is_hub(filesystem):
        return functools.partial(_fetch_from_hub, filesystem, location)

    def fetch_by_file(start: int, end: int) -> bytes:
        with filesystem.open(location, "rb", cache_type="none") as file:
            file.seek(start)
            data: bytes = file.read(end - start)
            return data

    return fetch_by_file


def _reading(filesystem: Any, location: str, version: str) -> Callable[[int, int], Coroutine[Any, Any, bytes]]:
    options: dict[str, Any] = {}
    if version and has_protocol(filesystem, "az"):
        return functools.partial(_read_azure, filesystem, location, version)
    if version and has_protocol(filesystem, "gs"):
        options = {"generation": version}
    elif version and has_protocol(filesystem, "http"):
        options = {"headers": _condition(version)}

    async def read(start: int, end: int) -> bytes:
        data: bytes = await filesystem._cat_file(location, start=start, end=end, **options)  # noqa: SLF001 - its public form knows no limit
        return data

    return read


def _condition(version: str) -> dict[str, str]:
    """The header of RFC 9110 by which a web server refuses another version."""
    if version.startswith('"'):
        return {"If-Match": version}
    return {} if version.startswith("W/") else {"If-Unmodified-Since": version}


async def _read_azure(filesystem: Any, location: str, version: str, start: int, end: int) -> bytes:
    match: Any = importlib.import_module("azure.core").MatchConditions.IfNotModified
    container, blob, _ = filesystem.split_path(location)
    async with filesystem.service_client.get_blob_client(container=container, blob=blob) as client:
        stream = await client.download_blob(offset=start, length=end - start, etag=version, match_condition=match)
        data: bytes = await stream.readall()
        return data


def _fetch_from_hub(filesystem: Any, location: str, start: int, end: int) -> bytes:
    hub: Any = importlib.import_module("huggingface_hub.utils")
    headers = hub.build_hf_headers(token=filesystem.token) | {"Range": f"bytes={start}-{end - 1}"}
    answer = hub.get_session().get(url_of(filesystem, location), headers=headers, timeout=REQUEST_SECONDS)
    if answer.status_code == 404:
        raise FileNotFoundError(location)
    if answer.status_code in (401, 403):
        raise PermissionError(f"{answer.status_code} {answer.reason_phrase}: {location}")
    hub.hf_raise_for_status(answer)
    data: bytes = answer.content
    return data
