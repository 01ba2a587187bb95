"""Uploads a unit's files from a bounded scratch folder to the directory, under names that belong to one lease.

A file's name contains the token of the lease, so that a repeated upload replaces only itself, and two holders of a unit
never write the same object.
"""

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c

from tpujob_trainer.corpus.workers.claims import Lease, unit_name
from tpujob_trainer.corpus.workers.failures import ScratchFullError
from tpujob_trainer.corpus.workers.results import OUTPUTS, OutputFile
from tpujob_trainer.storage import is_local
from tpujob_trainer.storage.directory import Directory
from tpujob_trainer.storage.errors import used
from tpujob_trainer.storage.retrying import Retrying

CHUNK_BYTES = 8 << 20
LIMIT_SECONDS = 900.0
"""For one file, including all retries."""
_PREFIX = "tpujob-worker-"


class Scratch:
    """A folder of this process for files before their upload, of limited size; freed after each upload."""

    def __init__(self, parent: str | None, limit_bytes: int, *, field: str) -> None:
        """Creates the folder, and removes those that dead workers of this machine left in the same place.

        Args:
            parent: of the folder; None: the system's folder for temporary files.
            limit_bytes: most bytes at a time; a single unit may need more.
            field: the field with `parent`, for messages.

        Raises:
            ScratchFullError: the disk has less than `limit_bytes` free.
        """
        where = Path(parent or tempfile.gettempdir())
        where.mkdir(parents=True, exist_ok=True)
        _remove_dead(where)
        free = shutil.disk_usage(where).free
        if free < limit_bytes:
            raise ScratchFullError(
                f"{field}: {where} has {free / 1e9:.2f} GB free, and scratchBytes asks for {limit_bytes / 1e9:.2f} GB; "
                "free some, name another folder, or lower scratchBytes"
            )
        self.folder = where / f"{_PREFIX}{os.getpid()}"
        self.folder.mkdir(exist_ok=True)
        self.most_bytes = 0
        """Most bytes that were in use at once."""
        self._limit_bytes = limit_bytes
        self._field = field
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def room(self, num_bytes: int) -> Iterator[None]:
        """A context for the lifetime of a unit's files; waits until there is room for them."""
        with self._changed:
            while self._used and self._used + num_bytes > self._limit_bytes:
                self._changed.wait()
            self._used += num_bytes
            self.most_bytes = max(self.most_bytes, self._used)
        try:
            yield
        finally:
            with self._changed:
                self._used -= num_bytes
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context for code that writes into the folder, and nowhere else.

        Raises:
            ScratchFullError: the disk is full in spite of the limit.
        """
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ScratchFullError(
                    f"{self._field}: {self.folder.parent} is full ({os.strerror(error.errno)}) with "
                    f"{self._used / 1e9:.2f} GB of this worker; give it more room, or lower scratchBytes; finished "
                    "units are kept"
                ) from error
            raise

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Uploads:
    """Copies files into the output directory."""

    def __init__(self, directory: str, retrying: Retrying | None = None) -> None:
        """`directory` is a local path or a gs:// address."""
        self._directory = directory.rstrip("/")
        self._files = Directory(self._directory, retrying or Retrying(limit_seconds=LIMIT_SECONDS))
        if is_local(directory):
            (Path(directory) / OUTPUTS).mkdir(parents=True, exist_ok=True)

    def upload(self, held: Lease, number: int, file: Path, rows: int) -> OutputFile:
        """Uploads one file of a unit, removes the local one, and returns its facts.

        Raises:
            StorageFailedError: storage has failed for too long.
            TrainerError: storage refuses it, or is full.
        """
        name = f"{OUTPUTS}{unit_name(held.unit)}-{held.token}-{number:03d}{file.suffix}"
        size, checksum = file.stat().st_size, crc32c_of(file)
        with used(self._directory):
            self._files.upload(name, file)
        file.unlink()
        return OutputFile(name=name, rows=rows, bytes=size, crc32c=checksum)

    def remove(self, files: tuple[OutputFile, ...]) -> None:
        """Removes files of this worker that are no part of the result: another worker was first."""
        for file in files:
            self._files.remove(file.name)


def crc32c_of(file: Path) -> str:
    """The CRC32C of a file, as eight hexadecimal digits."""
    checksum: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    with file.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            checksum.update(chunk)
    return str(checksum.digest().hex())


def _remove_dead(where: Path) -> None:
    for folder in where.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
