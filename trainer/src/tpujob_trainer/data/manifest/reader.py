"""Reads the rows of one unit, from its part of its file only; retries during a run, as a missing file may come back.

Before the first step, a file that is gone or changed is the user's to fix, and is refused at once. Hours later, the
cause is more often a mount that hangs or a copy in progress: to end the run would lose training for nothing.
"""

import collections
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from tpujob_trainer.data.formats import OpenedFile, RawRows, format_named
from tpujob_trainer.data.formats.webdataset import OpenedTar, Sample
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.sources.files import DataRoot, explained, open_root
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.retrying import Retrying, StorageFailedError
from tpujob_trainer.storage.versions import PATH, DataChangedError
from tpujob_trainer.values.errors import NotFoundError, TrainerError, brief

_FILES_KEPT = 64


class UnitReader:
    """Reads units; may be used by several threads."""

    def __init__(
        self, manifest: Manifest, roots: Sequence[DataRoot] | None = None, *, limit_seconds: float | None = None
    ) -> None:
        """Reads the files of a manifest.

        Args:
            manifest: the data.
            roots: those of its sources; opened if None.
            limit_seconds: how long a failed read of remote storage is retried; None: the limit of this process.
        """
        self._manifest = manifest
        self._roots = (
            list(roots)
            if roots is not None
            else [
                open_root(source.root, limit_seconds=limit_seconds, query=source.query) for source in manifest.sources
            ]
        )
        self._lock = threading.Lock()
        self._files: collections.OrderedDict[int, OpenedFile] = collections.OrderedDict()

    def read(self, number: int) -> RawRows:
        """The rows of a unit, in the order of the file.

        Raises:
            DataChangedError: the file is not the one of the manifest.
            NotFoundError: it is gone, or may no longer be read.
        """
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        root = self._roots[self._manifest.file_source[file]]
        with explained(root.locate(unit.path)):
            return self._opened(file, root).read(unit.part, unit.first, unit.count)

    def samples(self, number: int) -> list[Sample]:
        """The samples of a unit that is a webdataset tar, as bytes; raises the errors of `read`."""
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        root = self._roots[self._manifest.file_source[file]]
        with explained(root.locate(unit.path)):
            opened = self._opened(file, root)
            assert isinstance(opened, OpenedTar)
            return opened.samples()

    def path_of(self, number: int) -> str:
        """The full path of the file that a unit is in."""
        file = int(self._manifest.unit_file[number])
        return self._roots[self._manifest.file_source[file]].locate(self._manifest.paths[file])

    def forget(self, number: int) -> None:
        """Makes the next read open and check the file of a unit again."""
        with self._lock:
            self._files.pop(int(self._manifest.unit_file[number]), None)

    def _opened(self, file: int, root: DataRoot) -> OpenedFile:
        """The open file; each process checks it, to notice before use that it changed during a run."""
        with self._lock:
            if file in self._files:
                self._files.move_to_end(file)
                return self._files[file]
        source = self._manifest.sources[self._manifest.file_source[file]]
        known = format_named(source.format)
        opened = known.open(root, self._manifest.file(file), self._manifest.digests[file], source.column)
        with self._lock:
            self._files[file] = opened
            while len(self._files) > _FILES_KEPT:
                self._files.popitem(last=False)
        return opened


_LATER = "what was committed is kept, and another attempt may succeed"


class RetryingReader:
    """Reads units; may be used by several threads."""

    def __init__(self, reader: UnitReader, limit_seconds: float, retrying: Retrying | None = None) -> None:
        """Reads with `reader`, and retries for `limit_seconds`."""
        self._reader = reader
        self._retrying = retrying or Retrying(limit_seconds=limit_seconds, cause_of=_cause_of, given_up=_given_up)

    def read(self, number: int) -> RawRows:
        """The rows of a unit, in the order of the file.

        Raises:
            NotFoundError: the file was gone, cut off, changed or unreadable for too long.
            TrainerError: its storage did not answer for too long; another attempt may succeed.
        """
        return self._again(number, self._reader.read)

    def samples(self, number: int) -> list[Sample]:
        """The samples of a unit that is a webdataset tar, in the order of the file; raises the errors of `read`."""
        return self._again(number, self._reader.samples)

    def _again[T](self, number: int, read: Callable[[int], T]) -> T:
        try:
            return self._retrying(self._reader.path_of(number), lambda: self._once(number, read))
        except StorageFailedError as error:  # each request has already been retried for as long
            raise TrainerError(f"{error} ({_LATER})") from error

    def _once[T](self, number: int, read: Callable[[int], T]) -> T:
        try:
            return read(number)
        except Exception:
            self._reader.forget(number)
            raise


def _cause_of(error: BaseException) -> str | None:
    if isinstance(error, DataChangedError):
        return "changed"
    if isinstance(error, NotFoundError):
        return "missing"
    if isinstance(error, OSError | pa.ArrowException) and not isinstance(error, TrainerError):
        return "unreadable"
    return None


def _given_up(what: str, error: Exception, trouble: str) -> TrainerError:
    if isinstance(error, TrainerError):
        return NotFoundError(f"{error} ({trouble}; what was committed is kept)")
    if storage_errors.is_out_of_reach(error) and not storage_errors.is_refused(error):
        return TrainerError(f"{PATH}: {what!r} cannot be reached at present: {brief(error)} ({trouble}; {_LATER})")
    return NotFoundError(
        f"{PATH}: {what!r} cannot be read: {brief(error)}; put the file back as it was ({trouble}; what was committed "
        "is kept)"
    )
