"""A lock on a file in a checkpoint directory, on a mounted file system: only one live run may write there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpujob_trainer import errors
from tpujob_trainer.checkpoint.prior_run import LOCK

_LACKING = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EXDEV, errno.EEXIST}


class Lock:
    """Held from its creation until `release`, or until the process ends."""

    def __init__(self, directory: str) -> None:
        """Takes the lock; creates the directory if it is missing.

        Raises:
            ConfigurationError: another run holds it, a folder is in its place, or the file system lacks what
                checkpoints need.
            OSError: the directory cannot be written.
        """
        self._directory = Path(directory)
        self._descriptor = _acquire(self._directory)
        _require_replacing(self._directory)

    def verify(self) -> None:
        """Always returns: the lock is lost only with its file, which `confirm` checks."""

    def confirm(self) -> bool:
        """Takes the lock again if its file is gone or was replaced; returns whether it was.

        Raises:
            ConfigurationError: another run has taken the lock meanwhile.
            OSError: the directory cannot be written.
        """
        held = os.fstat(self._descriptor)
        try:
            found = (self._directory / LOCK).stat()
        except FileNotFoundError:
            pass
        else:
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return False
        try:
            descriptor = _acquire(self._directory)
        except errors.ConfigurationError:
            if _holder(self._directory) == _identity():  # the file system gave our file another inode number
                return False
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Releases the lock, so that the next run can write at once."""
        os.close(self._descriptor)


def _acquire(directory: Path) -> int:
    """Locks the file; returns its descriptor."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except IsADirectoryError as error:
        raise errors.ConfigurationError(
            f"spec.checkpointDir: {directory / LOCK} is a folder, where the run's lock file belongs; move it away, "
            "or use another directory"
        ) from error
    try:
        with _needed(directory, "locks, by which a second run is kept out (flock)"):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        holder = _holder(directory) or "a process that left no name"
        raise errors.ConfigurationError(
            f"spec.checkpointDir: another run is writing to {directory}: {holder}; end it first, "
            "or use another directory"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{_identity()}\n".encode(), 0)
    return descriptor


def _require_replacing(directory: Path) -> None:
    """Returns if a written file can replace another one at once, as each commit does."""
    written, replaced = (directory / f"{LOCK}.{name}" for name in ("written", "replaced"))
    try:
        for path in (written, replaced):
            with path.open("wb") as file, _needed(directory, "writes that are flushed to the disk (fsync)"):
                os.fsync(file.fileno())
        with _needed(directory, "a rename that replaces the file of that name"):
            written.rename(replaced)
    finally:
        for path in (written, replaced):
            path.unlink(missing_ok=True)


@contextmanager
def _needed(directory: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        raise errors.ConfigurationError(
            f"spec.checkpointDir: the file system of {directory} lacks {what}: {error.strerror}; "
            "use a local disk, NFS 4 or a gs:// bucket"
        ) from error


def _holder(directory: Path) -> str:
    with (directory / LOCK).open("rb") as file:
        return file.read(256).decode(errors="replace").strip()


def _identity() -> str:
    return f"pid {os.getpid()} on host {os.uname().nodename}"
