"""What a parquet file says about itself in its last bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data.sources.files import PATH, DataRoot, explained
from tpujob_trainer.data.sources.remote import LocalFile, SizeChangedError
from tpujob_trainer.errors import ANOTHER_RUN, ConfigurationError

_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"


class DataChangedError(ConfigurationError):
    """A file of the data set is not the one that this run began with."""


@dataclass(frozen=True)
class Footer:
    """The footer of one file."""

    metadata: Any
    """pyarrow's FileMetaData. Asking it for its `schema` would keep both for ever: pyarrow ties them in a circle."""
    schema: Any
    """Arrow's, of the rows."""
    digest: str
    """32 hexadecimal digits. The footer holds offsets, sizes and statistics of every column: other content, other
    digest, but for an edit in place that changes none of these."""


def read_footer(root: DataRoot, path: str, size: int, *, is_listed: bool) -> Footer:
    """The footer of a file that is `size` bytes long, with one request in most cases.

    Args:
        root: of the data.
        path: below the root.
        size: bytes the file should have.
        is_listed: the size was just read from the storage; else it is what the run began with.

    Raises:
        ConfigurationError: the file is not parquet.
        DataChangedError: the file has another size.
        NotFoundError: it is not there, or may not be read.
    """
    with explained(root.locate(path)), root.open(path, size) as file:
        try:
            _require_length(file, size)
            # On a disk two reads cost nothing; elsewhere one that is mostly long enough is half the waiting.
            tail = _read_at(file, max(0, size - (8 if isinstance(file, LocalFile) else _TAIL_BYTES)), size)
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
                tail = _read_at(file, size - wanted, size)
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
    """Check that a footer just read is the one that the manifest knows.

    Raises:
        DataChangedError: naming the file.
    """
    if digest != expected:
        raise DataChangedError(changed(path, "its footer is another one"))


def changed(path: str, how: str) -> str:
    """The message about a file that is not the one the run began with."""
    return f"{PATH}: {path!r} has changed since this run began: {how}; put the data back as it was, or {ANOTHER_RUN}"


def _require_length(file: Any, size: int) -> None:
    length = file.seek(0, 2)
    if length != size:
        raise SizeChangedError(size, length)


def _read_at(file: Any, start: int, end: int) -> bytes:
    file.seek(start)
    data: bytes = file.read(end - start)
    return data
