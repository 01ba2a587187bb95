"""The data set as a run knows it: files, and units cut out of their row groups.

Made once by process 0 from the footers, kept beside the checkpoint as one parquet table, read by everybody else.
A unit is a range of rows of one row group, small enough to be held and shuffled in memory.
"""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.files import PATH, DataFile, DataRoot, find_files
from tpujob_trainer.data.footers import DataChangedError, Footer, changed, read_footer
from tpujob_trainer.errors import ConfigurationError

logger = logging.getLogger(__name__)

UNITS_PER_LANE = 8
"""Units that each lane should have at least: with one more unit than lanes, one lane would take twice as long for an
epoch as the others; with eight for each, an eighth longer."""

_THREADS = 32
_TELL_SECONDS = 10


@dataclass(frozen=True)
class Unit:
    """Rows [first_row, first_row + num_rows) of a row group."""

    path: str
    row_group: int
    first_row: int
    num_rows: int


@dataclass(frozen=True, eq=False)
class Manifest:
    """Files and units as columns; unit i is the i-th entry of each unit column."""

    root: str
    """URL of the folder that paths are relative to. Not part of the fingerprint: data may move."""
    text_column: str
    paths: tuple[str, ...]
    sizes: np.ndarray
    """int64 [files], bytes."""
    digests: tuple[str, ...]
    """Of each footer."""
    versions: tuple[str, ...]
    """What the storage calls the version of each file; empty if it does not say."""
    unit_file: np.ndarray
    """int32 [units]"""
    unit_row_group: np.ndarray
    """int32 [units]"""
    unit_first_row: np.ndarray
    """int64 [units], within the row group."""
    unit_num_rows: np.ndarray
    """int64 [units]"""
    unit_num_bytes: np.ndarray
    """int64 [units], decoded bytes of the text column, as the footer tells them."""

    @property
    def num_units(self) -> int:
        """Units of the data set."""
        return len(self.unit_file)

    @functools.cached_property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return int(self.unit_num_rows.sum())

    @functools.cached_property
    def largest_unit_bytes(self) -> int:
        """Decoded bytes of the largest unit."""
        return int(self.unit_num_bytes.max())

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change with any file and with the way units are cut."""
        digest = hashlib.blake2b(digest_size=16)
        for path, size, footer in zip(self.paths, self.sizes.tolist(), self.digests, strict=True):
            digest.update(f"{path}\0{size}\0{footer}\n".encode())
        digest.update(self.text_column.encode())
        for column in (self.unit_file, self.unit_row_group, self.unit_first_row, self.unit_num_rows):
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def unit(self, number: int) -> Unit:
        """One unit."""
        return Unit(
            self.paths[self.unit_file[number]],
            int(self.unit_row_group[number]),
            int(self.unit_first_row[number]),
            int(self.unit_num_rows[number]),
        )

    @functools.cached_property
    def file_numbers(self) -> dict[str, int]:
        """The position of each path in the file columns."""
        return {path: number for number, path in enumerate(self.paths)}


def make_manifest(config: DataConfig, *, batch_size: int | None = None) -> Manifest:
    """The manifest of what `config.path` means now, cut into enough units for the lanes of a global batch.

    Args:
        config: where the data is, and how large a unit may be.
        batch_size: rows of the global batch; None to cut by size alone.

    Raises:
        NotFoundError: no such file, or no permission.
        ConfigurationError: a file is not parquet or lacks the text column, or there are no rows at all.
    """
    root, files = find_files(config.path)
    logger.info("Reading the footers of %d parquet files: root=%s", len(files), root.url)
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "footer") as pool:
        scans = list(_told(pool.map(lambda file: _scan(root, file, config.text_column), files), len(files)))
    minimum = UNITS_PER_LANE * (config.lanes or batch_size) if batch_size else 1
    numbered = (scan.row_groups(number) for number, scan in enumerate(scans))
    row_groups = [np.concatenate(column) for column in zip(*numbered, strict=True)]
    columns = cut_units(*row_groups, unit_bytes=config.unit_bytes, minimum=minimum)
    manifest = Manifest(
        root.url,
        config.text_column,
        tuple(file.path for file in files),
        np.array([file.size for file in files], dtype=np.int64),
        tuple(scan.digest for scan in scans),
        tuple(file.version for file in files),
        *columns,
    )
    if not manifest.num_units:
        raise ConfigurationError(f"{PATH}: {config.path!r} has {len(files)} parquet files and no row in any of them")
    logger.info(
        "Data: files=%d rows=%d units=%d bytes=%d fingerprint=%s",
        len(files), manifest.num_rows, manifest.num_units, int(manifest.unit_num_bytes.sum()), manifest.fingerprint,
    )  # fmt: skip
    return manifest


def cut_units(
    file: np.ndarray, row_group: np.ndarray, rows: np.ndarray, size: np.ndarray, *, unit_bytes: int, minimum: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Units (file, row group, first row, rows, bytes) of these row groups, in their order.

    No unit is larger than `unit_bytes`, but for a single row, and there are at least `minimum`, but for data that has
    fewer rows. Empty row groups have none.

    Args:
        file: [row groups] number of the file that holds it.
        row_group: [row groups] its number within the file.
        rows: [row groups] its rows.
        size: [row groups] decoded bytes of its text.
        unit_bytes: most bytes of a unit.
        minimum: least number of units.
    """
    kept = rows > 0
    file, row_group, rows, size = file[kept], row_group[kept], rows[kept], size[kept]
    parts = np.clip(-(-size // unit_bytes), 1, rows)
    if parts.sum() < minimum and len(rows):
        parts = np.maximum(parts, -(-rows // _longest_unit(rows, parts, minimum)))
    which = np.repeat(np.arange(len(rows)), parts)
    part = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
    first = rows[which] * part // parts[which]
    end = rows[which] * (part + 1) // parts[which]
    share = size[which] * (end - first) // rows[which]
    return (
        file[which].astype(np.int32),
        row_group[which].astype(np.int32),
        first.astype(np.int64),
        (end - first).astype(np.int64),
        share.astype(np.int64),
    )


def verify_unchanged(manifest: Manifest, config: DataConfig) -> None:
    """Check that `config.path` still means the files of the manifest: same paths, sizes and versions, else footers.

    Raises:
        DataChangedError: naming a file that is gone, new or different.
    """
    root, files = find_files(config.path)
    now = {file.path: file for file in files}
    for path in manifest.paths:
        if path not in now:
            raise DataChangedError(changed(path, "it is gone"))
    for path in now:
        if path not in manifest.file_numbers:
            raise DataChangedError(changed(path, "it is new"))

    def check(number: int) -> None:
        file = now[manifest.paths[number]]
        if file.size != manifest.sizes[number]:
            raise DataChangedError(changed(file.path, f"its size was {manifest.sizes[number]} bytes, now {file.size}"))
        if file.version and file.version == manifest.versions[number]:
            return
        require_footer(manifest, number, read_footer(root, file.path, file.size, is_listed=True))

    with concurrent.futures.ThreadPoolExecutor(_THREADS, "footer") as pool:
        for _ in pool.map(check, range(len(manifest.paths))):
            pass


def require_footer(manifest: Manifest, number: int, footer: Footer) -> None:
    """Check that a footer just read is the one that the manifest knows.

    Raises:
        DataChangedError: naming the file.
    """
    if footer.digest != manifest.digests[number]:
        raise DataChangedError(changed(manifest.paths[number], "its footer is another one"))


@dataclass(frozen=True)
class _Scan:
    digest: str
    rows: np.ndarray
    size: np.ndarray

    def row_groups(self, file: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        count = len(self.rows)
        return np.full(count, file, dtype=np.int64), np.arange(count, dtype=np.int64), self.rows, self.size


def _told(scans: Iterator[_Scan], total: int) -> Iterator[_Scan]:
    """The same scans, with a line in the log now and then."""
    told = time.monotonic()
    for done, scan in enumerate(scans, 1):
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            logger.info("Footers read: %d of %d", done, total)
        yield scan


def _scan(root: DataRoot, file: DataFile, text_column: str) -> _Scan:
    footer = read_footer(root, file.path, file.size, is_listed=True)
    column = _column_number(footer.metadata, root.locate(file.path), text_column)
    rows, sizes = [], []
    for number in range(footer.metadata.num_row_groups):
        group = footer.metadata.row_group(number)
        rows.append(group.num_rows)
        sizes.append(group.column(column).total_uncompressed_size)
    return _Scan(footer.digest, np.array(rows, dtype=np.int64), np.array(sizes, dtype=np.int64))


def _column_number(metadata: Any, path: str, text_column: str) -> int:
    schema = metadata.schema.to_arrow_schema()
    if text_column not in schema.names:
        raise ConfigurationError(
            f"spec.trainer.data.textColumn: {text_column!r} is not a column of {path!r}; "
            f"there are {', '.join(schema.names)}"
        )
    kind = schema.field(text_column).type
    if not is_text(kind):
        texts = [field.name for field in schema if is_text(field.type)]
        raise ConfigurationError(
            f"spec.trainer.data.textColumn: {text_column!r} of {path!r} holds {kind}, not text; "
            f"columns with text: {', '.join(texts) or 'none'}"
        )
    return next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == text_column)


def is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type can be read as text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in (*tests, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _longest_unit(rows: np.ndarray, parts: np.ndarray, minimum: int) -> int:
    """The largest number of rows that, as a limit for a unit, gives the minimum of units; 1 if nothing does."""
    low, high = 1, int(rows.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.maximum(parts, -(-rows // middle)).sum() >= minimum:
            low = middle
        else:
            high = middle - 1
    return low
