"""Reads units during a run, and retries for a while, because a missing file may come back.

Before the first step, a file that is gone or changed is the user's to fix, and is refused at once. Hours later, the
cause is more often a mount that hangs or a copy in progress: to end the run would lose training for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tpujob_trainer.data.formats import RawRows
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.errors import NotFoundError, TrainerError, brief
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.retrying import Retrying, StorageFailedError
from tpujob_trainer.storage.versions import PATH, DataChangedError

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
