"""A directory on any storage: one listing with metadata, small files read and written, files uploaded."""

import base64
import contextlib
import datetime
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec.asyn

from tpujob_trainer.storage import is_local, open_bucket
from tpujob_trainer.storage.errors import used
from tpujob_trainer.storage.filesystems import located
from tpujob_trainer.storage.retrying import IncompleteReadError, Retrying
from tpujob_trainer.storage.whole import is_whole

RETRYING = Retrying()
REQUEST_SECONDS, SLOWEST_BYTES_PER_SECOND = 120.0, 1 << 20
"""After which an upload is aborted and retried: this many seconds, plus the time for its bytes at this rate."""
LOCK = ".__lock"
"""Suffix of the files that TensorStore keeps beside an object in a directory, while it writes
(google/tensorstore:tensorstore/kvstore/file)."""


@dataclass(frozen=True)
class ListedFile:
    """A file as it was listed."""

    name: str
    """Below the directory."""
    bytes: int
    crc32c: str | None
    """Eight hexadecimal digits; None: storage has none."""
    time: float
    """When it was written, in Unix seconds by the clock of the storage."""


class Directory:
    """A directory on any storage, for reading and writing."""

    def __init__(self, url: str, retrying: Retrying = RETRYING) -> None:
        """`url` is a local path or an address; `retrying` retries what fails."""
        self.url = url.rstrip("/")
        self._retrying = retrying
        self._filesystem, root = located(self.url)
        self._root = root.rstrip("/")

    def files(self, folder: str) -> list[ListedFile]:
        """The files below a folder, sorted by name; none if there is no such folder.

        Raises:
            TrainerError: the folder cannot be listed.
        """
        self._filesystem.invalidate_cache()
        # Fsspec takes a folder on a disk that cannot be listed for an empty one.
        strictly = {"on_error": _raise_unless_gone} if is_local(self.url) else {}
        find = functools.partial(self._filesystem.find, f"{self._root}/{folder}", detail=True, **strictly)
        with used(self.url):
            found: dict[str, dict[str, Any]] = self._retrying(folder, find)
        listed = (self._listed(info) for path, info in found.items() if not path.endswith(LOCK))
        return sorted(listed, key=lambda file: file.name)

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """The content of a file, of `num_bytes` if they are known: a bucket's answer may be a part of it.

        Raises:
            FileNotFoundError: there is none.
        """

        def read() -> bytes:
            content: bytes = self._filesystem.cat_file(f"{self._root}/{name}")
            if num_bytes is None:
                return self._whole(name, content)
            if len(content) < num_bytes:
                raise IncompleteReadError(f"{len(content)} of {num_bytes} bytes")
            return content

        return self._retrying(name, read)

    def read_many(self, names: list[str]) -> dict[str, bytes]:
        """The contents of several files, requested at the same time, without those that are gone."""

        def read() -> dict[str, bytes]:
            # Not `cat`: it takes a path with a bracket for a pattern.
            found = self._filesystem.cat_ranges([f"{self._root}/{name}" for name in names], None, None)
            for each in found:
                if isinstance(each, Exception) and not isinstance(each, FileNotFoundError):
                    raise each
            there = zip(names, found, strict=True)
            return {name: self._whole(name, each) for name, each in there if isinstance(each, bytes)}

        return self._retrying(names[0], read) if names else {}

    def _whole(self, name: str, content: bytes) -> bytes:
        return content if is_whole(name, content) else open_bucket(self.url).read(name)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file; it replaces an older one."""
        self._retrying(name, functools.partial(self._filesystem.pipe_file, f"{self._root}/{name}", content))

    def upload(self, name: str, file: Path) -> None:
        """Writes the content of a local file; it replaces an older one.

        Raises:
            StorageFailedError: storage has failed for too long.
        """
        self._retrying(name, functools.partial(self._put, file, f"{self._root}/{name}"))

    def _put(self, file: Path, target: str) -> None:
        """Uploads once; the time limit is for a server that accepts the connection and does not answer."""
        filesystem = self._filesystem
        if isinstance(filesystem, fsspec.asyn.AsyncFileSystem):
            limit = REQUEST_SECONDS + file.stat().st_size / SLOWEST_BYTES_PER_SECOND
            fsspec.asyn.sync(filesystem.loop, filesystem._put_file, str(file), target, timeout=limit)  # noqa: SLF001
        else:
            filesystem.put_file(str(file), target)

    def remove(self, name: str) -> None:
        """Removes a file, unless another process has removed it."""
        with contextlib.suppress(FileNotFoundError):
            self._retrying(name, functools.partial(self._filesystem.rm_file, f"{self._root}/{name}"))

    def _listed(self, info: dict[str, Any]) -> ListedFile:
        checksum = info.get("crc32c")
        return ListedFile(
            str(info["name"]).removeprefix(self._root).lstrip("/"),
            int(info["size"]),
            base64.b64decode(checksum).hex() if checksum else None,
            _seconds(info.get("mtime") or info.get("updated") or info.get("last_modified") or info.get("created")),
        )


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _seconds(when: Any) -> float:
    """Unix seconds of a file system's timestamp: a number, a date, or a date as text."""
    if isinstance(when, datetime.datetime):
        return when.timestamp()
    if isinstance(when, str):
        return datetime.datetime.fromisoformat(when).timestamp()
    return float(when or 0)
