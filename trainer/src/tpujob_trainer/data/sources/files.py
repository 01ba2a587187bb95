"""The files that a path refers to, and where they are read from."""

import contextlib
import glob
import logging
import os
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tpujob_contract import storage_address
from tpujob_trainer.data.sources import brace_ranges
from tpujob_trainer.data.sources.folder_kinds import require_loose_files
from tpujob_trainer.storage.errors import status_of
from tpujob_trainer.storage.filesystems import at_commit, is_hub, is_on_disk, located, require_followed
from tpujob_trainer.storage.remote import LocalFile, RemoteFile, is_there, reach, request
from tpujob_trainer.storage.retrying import StorageFailedError
from tpujob_trainer.storage.versions import PATH, FileStatus, version_of
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError, TrainerError, message

logger = logging.getLogger(__name__)

_PATTERN_CHARACTERS = "*?["


@dataclass(frozen=True)
class DataFile:
    """A file of the data set: its path below the root, its size in bytes, and its version in its storage."""

    path: str
    size: int
    version: str
    """Object generation, or another tag that changes with the content; empty if the storage has none. For a file on a
    disk, its status, and in a manifest samples of its content as well: see `storage.versions`."""


@dataclass(frozen=True)
class DataRoot:
    """The folder that the paths of a data set are relative to, on its file system."""

    filesystem: Any
    folder: str
    limit_seconds: float | None = None
    """How long a failed read of remote storage is retried; None: the limit of this process."""
    query: str = field(default="", repr=False)
    """Of the address, if it names one file; may be a signature, so it is stored and printed nowhere."""

    @property
    def url(self) -> str:
        """The folder with its protocol."""
        return str(self.filesystem.unstrip_protocol(self.folder))

    def locate(self, path: str) -> str:
        """The full path of a file, without protocol, as the file system wants it."""
        return f"{self.folder.rstrip('/')}/{path}"

    def open(self, path: str, size: int | None = None, version: str | None = None) -> Any:
        """The file, opened for reading bytes; remote reads ask for exactly the requested bytes, one request each.

        Reads are counted (`storage.read_meter`), and remote ones retried if that may help.

        Args:
            path: below the root.
            size: bytes, if known: saves a request to remote storage.
            version: that of the manifest; None: any version is read.

        Raises:
            DataChangedError: a file on a disk has another version; for remote storage, reading raises it.
        """
        location = self.locate(path)
        if is_on_disk(self.filesystem):
            return LocalFile(location, version, path)
        return RemoteFile(
            self.filesystem,
            location,
            size,
            version=version or "",
            query=self.query,
            name=path,
            limit_seconds=self.limit_seconds,
        )

    def open_to_check(self, file: DataFile, *, is_listed: bool) -> Any:
        """A file that was just listed, or one of the manifest, whose size is requested for a comparison."""
        return self.open(file.path, file.size) if is_listed else self.open(file.path, None, file.version)

    def require_unchanged(self, file: DataFile) -> None:
        """Checks a file on a disk before cached data of it is used again; remote storage is not asked.

        Raises:
            DataChangedError: it has another version.
        """
        if is_on_disk(self.filesystem):
            self.open_file(file).close()

    def open_file(self, file: DataFile) -> Any:
        """A file of the manifest, opened for reading bytes of its version only; see `open`."""
        return self.open(file.path, file.size, file.version)


def open_root(url: str, *, limit_seconds: float | None = None, query: str = "") -> DataRoot:
    """The root at a URL or local path, taken as a folder."""
    filesystem, folder = located(url)
    return DataRoot(filesystem, folder, limit_seconds, query)


def find_root(path: str, field: str = PATH) -> DataRoot:
    """The root of the files that a path refers to: the named folder, or the folder before any pattern."""
    with explained(path, field):
        reach(path)
        address, query = storage_address.without_query(path)
        if query:
            return _folder_of(address, query)
        filesystem, location = _located(path)
        return _root(filesystem, location, _literal(filesystem, location))


def list_files(path: str, field: str = PATH) -> tuple[DataRoot, list[DataFile]]:
    """All files that a path refers to, sorted by path; those that begin with a dot or an underscore only if named.

    Raises:
        NotFoundError: nothing is there, or it may not be read.
    """
    with explained(path, field):
        reach(path)
        address, query = storage_address.without_query(path)
        if query:
            return _one_file(path, _folder_of(address, query), address)
        filesystem, location = _located(path)
        literal = _literal(filesystem, location)
        root, rest = _root(filesystem, location, literal), location[len(literal) :]
        pattern = glob.escape(literal) + rest
        if _is_range(filesystem, location, literal):
            return root, _files_of_range(root, pattern, path, field)
        is_pattern = _is_pattern(rest)
        read, named = (filesystem.glob, pattern) if is_pattern else (filesystem.find, location)
        listing = request(path, lambda: read(named, detail=True))
    files = _described(root, listing.values(), field)
    require_loose_files((file.path for file in files), path, field)
    if not PurePosixPath(location).name.startswith((".", "_")):
        files = [file for file in files if not _is_hidden(file.path)]
    for name in (root.folder, *(file.path for file in files)):
        if not name.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in name):
            encoding = sys.getfilesystemencoding()
            raise ConfigurationError(
                f"{field}: {name!a} is no UTF-8, which the list of data needs; rename it, or give a pattern without it"
                if encoding == "utf-8"
                else f"{field}: {os.fsencode(name).decode(errors='backslashreplace')!r} has letters that are not in "
                f"{encoding}, the encoding of names that LC_ALL and PYTHONUTF8 set; unset both, or set LC_ALL=C.UTF-8"
            )
    if not files:
        if is_pattern and is_there(filesystem, location):
            escaped = re.sub(r"([\[*?])", r"[\1]", location) + ("/**" if filesystem.isdir(location) else "")
            raise NotFoundError(
                f"{field}: {path!r} was taken as a pattern, and matches no file; to name what is called so, write "
                f"{filesystem.unstrip_protocol(escaped)!r}"
            )
        raise NotFoundError(f"{field}: {path!r} matches no file; give a file, a folder that has some, or a pattern")
    return root, files


def _is_pattern(location: str) -> bool:
    return bool(set(location) & set(_PATTERN_CHARACTERS))


def _literal(filesystem: Any, location: str) -> str:
    """The start of a location that is no pattern: on a disk all folders that exist, whatever their names have."""
    if not is_on_disk(filesystem):
        return ""
    return next(str(path) for path in (Path(location), *Path(location).parents) if os.path.lexists(path))


def _is_range(filesystem: Any, location: str, literal: str) -> bool:
    """Whether braces in a location stand for several names, and are not part of the name of an existing file."""
    return brace_ranges.has_range(location[len(literal) :]) and not is_there(filesystem, location)


def _files_of_range(root: DataRoot, location: str, path: str, field: str) -> list[DataFile]:
    """Every file that a range names, sorted by path; folders in it with all their files."""
    count = brace_ranges.count(location)
    if count > brace_ranges.MOST_NAMES:
        raise ConfigurationError(
            f"{field}: {path!r} names {count} files, more than {brace_ranges.MOST_NAMES}; give a pattern with *"
        )
    found, missing = brace_ranges.find(root.filesystem, location)
    if missing:
        first = missing[0].removeprefix(root.folder).lstrip("/")
        which = f"is missing: {first!r}" if len(missing) == 1 else f"are missing, {first!r} for one"
        raise NotFoundError(
            f"{field}: {path!r} names {count} files, and {len(missing)} of them {which}; give the range of those that "
            "are there, or a pattern with *"
        )
    return _described(root, found, field)


def _described(root: DataRoot, entries: Collection[dict[str, Any]], field: str) -> list[DataFile]:
    """The files among the entries of a listing, sorted by path."""
    require_followed(entries, root.folder, field)
    return sorted(
        (describe(root, entry) for entry in entries if entry.get("type") == "file"), key=lambda file: file.path
    )


def _folder_of(address: str, query: str) -> DataRoot:
    filesystem, location = located(address)
    return DataRoot(filesystem, location.rpartition("/")[0], query=query)


def _one_file(path: str, root: DataRoot, address: str) -> tuple[DataRoot, list[DataFile]]:
    """The file at an address with a query: a query belongs to one file."""
    name = address.rpartition("/")[2]
    info = request(path, lambda: root.filesystem.info(root.locate(name) + root.query))
    return root, [describe(root, {**info, "name": root.locate(name)})]


def _located(path: str) -> tuple[Any, str]:
    """The file system of a path, and its location there; on the hub, in one commit."""
    filesystem, location = located(path)
    if is_hub(filesystem):
        reach(filesystem.endpoint)
        return filesystem, request(path, lambda: at_commit(filesystem, location))
    if is_on_disk(filesystem) and ".." in location and glob.has_magic(location):
        return filesystem, os.path.realpath(location)  # fsspec finds no name with .. by a pattern
    return filesystem, location


def _root(filesystem: Any, location: str, literal: str) -> DataRoot:
    parts, first = location.split("/"), literal.rstrip("/").count("/") + 1 if literal else 0
    is_range = _is_range(filesystem, location, literal)
    names = [(at, part) for at, part in enumerate(parts) if at >= first]
    fixed = next((at for at, part in names if _is_pattern(part) or (is_range and brace_ranges.has_range(part))), None)
    if fixed is not None:
        return DataRoot(filesystem, "/".join(parts[:fixed]) or location[:1].strip("*?["))
    if request(location, lambda: filesystem.isdir(location)):
        return DataRoot(filesystem, location)
    return DataRoot(filesystem, location.rpartition("/")[0])


@contextlib.contextmanager
def explained(what: str, field: str = PATH) -> Iterator[None]:
    """Converts errors of storage clients (not there, not allowed, no memory) into one line that ends the run."""
    try:
        yield
    except StorageFailedError as error:
        raise StorageFailedError(error.problem, field) from error.__cause__
    except TrainerError:
        raise
    except MemoryError as error:
        raise ConfigurationError(
            f"{field}: {what!r} takes more memory than this host has ({message(error)}); divide the "
            "file, or leave it out"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{field}: {what!r} is not there; check the spelling, and that this host sees it"
        ) from error
    except (ValueError, ImportError) as error:
        if "protocol" in str(error).lower() or isinstance(error, ImportError):
            raise NotFoundError(
                f"{field}: {what!r} is on a storage that is not supported: {message(error)}{_package_of(what)}"
            ) from error
        raise
    except Exception as error:
        if _is_denied(error):
            raise NotFoundError(
                f"{field}: no permission to read {what!r}: {message(error)}; grant the pod's account read access"
            ) from error
        raise


def _is_denied(error: Exception) -> bool:
    """Whether access was denied.

    Gcsfs raises OSError("Forbidden: …") for 403, HttpError for 401; google.auth has its own error without credentials.
    """
    if isinstance(error, PermissionError):
        return True
    if type(error).__module__.startswith("google.auth") or type(error).__name__ == "ClientAuthenticationError":
        return True
    return status_of(error) in (401, 403) or str(error).startswith(("Forbidden", "Anonymous caller"))


def describe(root: DataRoot, info: dict[str, Any]) -> DataFile:
    """A file from its entry in a listing of fsspec."""
    relative = info["name"].removeprefix(root.folder).lstrip("/")
    version = str(FileStatus.of(info["name"])) if is_on_disk(root.filesystem) else version_of(info)
    size = info["size"]
    if size is None:  # web servers list only names
        size = request(info["name"], lambda: root.filesystem.info(info["name"]))["size"]
    return DataFile(relative, int(size), version)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _package_of(address: str) -> str:
    """The end of a message: the package to install for a kind of storage that the trainer knows; else nothing."""
    backend = storage_address.BACKENDS.get(storage_address.scheme_of(address))
    return f'; install "tpujob-trainer[{backend.extra}]" in the image' if backend and backend.extra else ""
