"""Reads the footer of a parquet file, its last bytes."""

import hashlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained
from tpujob_trainer.storage.remote import LocalFile, SizeChangedError
from tpujob_trainer.storage.versions import PATH, DataChangedError, changed
from tpujob_trainer.values.errors import ConfigurationError

_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Footer:
    """The footer of one file."""

    metadata: Any
    """pyarrow's FileMetaData. Do not use its `schema`: pyarrow would make a reference cycle that is never freed."""
    schema: Any
    """The Arrow schema of the rows."""
    digest: str
    """32 hexadecimal digits. The footer holds offsets, sizes and statistics of every column: other content gives
    another digest, except for an edit in place that changes none of these."""


def read_footer(root: DataRoot, file: DataFile, *, is_listed: bool) -> Footer:
    """The footer of a file, with one request in most cases.

    Args:
        root: of the data.
        file: with the expected size.
        is_listed: the size was just read from the storage; else it is what the run started with.

    Raises:
        ConfigurationError: the file is not parquet.
        DataChangedError: the file has another size.
        NotFoundError: it is not there, or may not be read.
    """
    path, size = file.path, file.size
    with explained(root.locate(path)), root.open(path, size) if is_listed else root.open_file(file) as opened:
        try:
            _require_length(opened, size)
            # On a disk, two reads cost nothing; elsewhere, one read that is mostly long enough halves the wait.
            tail = _read_at(opened, max(0, size - (8 if isinstance(opened, LocalFile) else _TAIL_BYTES)), size)
            if size < 12 or tail[-4:] != _MAGIC:
                if not is_listed:
                    raise DataChangedError(changed(path, "its footer is another one"))
                raise ConfigurationError(
                    f"{PATH}: {root.locate(path)!r} is not a parquet file; leave it out or replace it"
                )
            wanted = int.from_bytes(tail[-8:-4], "little") + 8
            if wanted > size:
                raise ConfigurationError(f"{PATH}: {root.locate(path)!r} is cut off; copy it again or leave it out")
            if wanted > len(tail):
                tail = _read_at(opened, size - wanted, size)
        except SizeChangedError as error:
            raise DataChangedError(changed(path, str(error))) from error
    footer = tail[-wanted:]
    try:
        with pq.ParquetFile(pa.BufferReader(_MAGIC + footer)) as parquet:
            metadata, schema = parquet.metadata, parquet.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise ConfigurationError(f"{PATH}: {root.locate(path)!r} has an unreadable footer: {error}") from error
    return Footer(metadata, schema, hashlib.blake2b(footer, digest_size=16).hexdigest())


def require_digest(path: str, digest: str, expected: str) -> None:
    """Checks that a footer that was just read is the one of the manifest.

    Raises:
        DataChangedError: it is not; the message names the file.
    """
    if digest != expected:
        raise DataChangedError(changed(path, "its footer is another one"))


def _require_length(file: Any, size: int) -> None:
    length = file.seek(0, 2)
    if length != size:
        raise SizeChangedError(size, length)


def _read_at(file: Any, start: int, end: int) -> bytes:
    file.seek(start)
    data: bytes = file.read(end - start)
    return data
