"""Who may write to a checkpoint directory: its owner, who must hold the lock on a mounted file system.

The messages are about `spec.checkpointDir`; the modules that read the directory supply the facts.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpujob_contract.typed import object_in
from tpujob_trainer.values import errors

OWNER = "owner.json"
"""The file that names the directory's owner, as `{"owner": "namespace/name"}`."""
LOCK = ".lock"
"""The lock file on local paths: held by process 0 while it lives, with a line that names it."""
PROBE_BYTES = 1 << 16
"""Written at start, so that a run on a full disk ends before it has worked."""


def owner_in(text: bytes | str) -> str | None:
    """The owner that `owner.json` names; None: it names none."""
    found = object_in(text).get("owner")
    return found if isinstance(found, str) else None


def owner_problem(directory: str, present: str | None, owner: str, adopt: str | None) -> str | None:
    """Why this job may not write to a directory that belongs to `present`; None: it may."""
    if present == owner or (present is not None and present == adopt):
        return None
    if present is None:
        return (
            f"spec.checkpointDir: {directory}/{OWNER} does not say whose directory it is; "
            f'use another directory, or put {{"owner": "{owner}"}} there'
        )
    return (
        f"spec.checkpointDir: {directory} belongs to {present}, and this job is {owner}; use another directory, "
        f"or set spec.trainer.checkpoint.adopt: {present} to take it over"
    )


def model_differences(then: Mapping[str, Any], now: Mapping[str, Any], ignored: frozenset[str]) -> list[str]:
    """The keys whose values differ between a stored configuration and this one, as in "layers: 4 then, 3 now"."""
    return [
        f"{key}: {_text(then[key])} then, {_text(value)} now"
        for key, value in sorted(now.items())
        if key in then and key not in ignored and then[key] != value
    ]


def _text(value: Any) -> str:
    return "unset" if value is None else json.dumps(value).strip('"')


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
        try:
            _require_replacing(self._directory)
        except BaseException:
            self.release()
            raise

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
                file.write(bytes(PROBE_BYTES))
                file.flush()
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
