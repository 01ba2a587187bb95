"""The data set as a run knows it: sources, their files, and units cut out of the files' parts.

Made once by process 0 from a few reads of each file, kept beside the checkpoint as one parquet table, read by everybody
else. A unit is a range of elements of one part (formats/format.py), small enough to be held and shuffled in memory.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpujob_trainer.data.config import FIELD, Column, DataConfig, plain_rule
from tpujob_trainer.data.formats import FileScan, format_named
from tpujob_trainer.data.manifest.listing import Listing, is_pinned, list_source, root_now
from tpujob_trainer.data.manifest.row_limit import limited, up_to
from tpujob_trainer.data.sources.files import DataFile
from tpujob_trainer.data.sources.footers import DataChangedError, changed
from tpujob_trainer.errors import ANOTHER_RUN, ConfigurationError

logger = logging.getLogger(__name__)

UNITS_PER_LANE = 8
"""Units that each lane should have at least: with one more unit than lanes, one lane would take twice as long for an
epoch as the others; with eight for each, an eighth longer."""

_LEAST_BYTES = 1024
"""Of a unit that is a range of bytes, so that most of them hold a row."""
_THREADS = 32
_TELL_SECONDS = 10


@dataclass(frozen=True)
class Unit:
    """Elements [first, first + count) of a part of a file."""

    path: str
    part: int
    first: int
    count: int


@dataclass(frozen=True)
class Source:
    """What all files of a source have in common."""

    root: str
    """URL of the folder that paths are relative to. Not part of the fingerprint: data may move."""
    format: str
    """The name of their format."""
    column: Column
    """What is read of them."""
    rules_then: Mapping[str, str] | None = None
    """`Column.rules` of the run that wrote the manifest, until they are compared; None: those of the column."""

    @property
    def rules(self) -> Mapping[str, str]:
        """What else the rows and their tokens depend on."""
        return self.column.rules if self.rules_then is None else self.rules_then


@dataclass(frozen=True, eq=False)
class Manifest:
    """Files and units as columns; unit i is the i-th entry of each unit column. Units stand in the order of sources."""

    sources: tuple[Source, ...]
    paths: tuple[str, ...]
    file_source: np.ndarray
    """int32 [files], ascending."""
    sizes: np.ndarray
    """int64 [files], bytes."""
    digests: tuple[str, ...]
    """Of each file, as its format makes it."""
    versions: tuple[str, ...]
    """What the storage calls the version of each file; empty if it does not say."""
    unit_file: np.ndarray
    """int32 [units], ascending."""
    unit_part: np.ndarray
    """int32 [units]"""
    unit_first: np.ndarray
    """int64 [units], within the part."""
    unit_count: np.ndarray
    """int64 [units], elements: rows, bytes or files."""
    unit_bytes: np.ndarray
    """int64 [units], decoded bytes of the column, as the files tell them."""

    @property
    def num_units(self) -> int:
        """Units of all sources."""
        return len(self.unit_file)

    @functools.cached_property
    def source_units(self) -> tuple[range, ...]:
        """The units of each source."""
        of_unit = self.file_source[self.unit_file]
        ends = np.searchsorted(of_unit, np.arange(len(self.sources)), side="right").tolist()
        return tuple(range(begin, end) for begin, end in zip([0, *ends], ends, strict=False))

    @functools.cached_property
    def num_rows(self) -> int | None:
        """Rows of all sources; None where a format cannot tell without reading."""
        if any(format_named(source.format).elements != "rows" for source in self.sources):
            return None
        return int(self.unit_count.sum())

    @functools.cached_property
    def largest_unit_bytes(self) -> int:
        """Decoded bytes of the largest unit."""
        return int(self.unit_bytes.max())

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change with any file and with the way units are cut."""
        digest = hashlib.blake2b(digest_size=16)
        for source in self.sources:
            rules = "".join(f"\0{key}={value}" for key, value in source.rules.items())
            digest.update(f"{source.format}\0{source.column.kind}\0{source.column.name}{rules}\n".encode())
        files = zip(self.paths, self.file_source.tolist(), self.sizes.tolist(), self.digests, strict=True)
        for path, source_number, size, of_file in files:
            digest.update(f"{source_number}\0{path}\0{size}\0{of_file}\n".encode())
        for column in (self.unit_file, self.unit_part, self.unit_first, self.unit_count):
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def unit(self, number: int) -> Unit:
        """One unit."""
        return Unit(
            self.paths[self.unit_file[number]],
            int(self.unit_part[number]),
            int(self.unit_first[number]),
            int(self.unit_count[number]),
        )

    def name_row(self, unit: int, place: int) -> str:
        """What the row at a place of a unit is called in messages."""
        of = self.unit(unit)
        elements = format_named(self.sources[self.file_source[self.unit_file[unit]]].format).elements
        if elements == "rows":
            return (
                f"{of.path} part {of.part} row {of.first + place}" if of.part else f"{of.path} row {of.first + place}"
            )
        return f"{of.path} row {place}" + (f" after byte {of.first}" if elements == "bytes" and of.first else "")

    def file(self, number: int) -> DataFile:
        """One file."""
        return DataFile(self.paths[number], int(self.sizes[number]), self.versions[number])


def make_manifest(config: DataConfig, *, batch_size: int | None = None) -> Manifest:
    """The manifest of what the configuration means now, cut into enough units for the lanes of a global batch.

    Args:
        config: where the data is, and how large a unit may be.
        batch_size: rows of the global batch; None to cut by size alone.

    Raises:
        NotFoundError: no such file, or no permission.
        ConfigurationError: a file is not what it should be or lacks the column, or there are no rows at all.
    """
    minimum = UNITS_PER_LANE * (config.lanes or batch_size) if batch_size else 1
    listings = [list_source(source, field) for field, source in config.sources()]
    sources, scans, units, num_files = [], [], [], 0
    for (field, source), listing in zip(config.sources(), listings, strict=True):
        column = source.column(field)
        sources.append(Source(listing.root.url, listing.format.name, column))
        listing, found = limited(listing, _scan(listing, column), column, unit_bytes=config.unit_bytes)
        listings[len(sources) - 1] = listing
        scans += found
        least = _LEAST_BYTES if listing.format.elements == "bytes" else 1
        cut = cut_units(*_parts(found, num_files), unit_bytes=config.unit_bytes, minimum=minimum, least=least)
        if not len(cut[0]):
            raise ConfigurationError(
                f"{field}.{'path' if source.path else 'dataset'}: {(source.path or source.dataset)!r} has {len(found)} "
                f"{listing.format.name} files and no row in any of them"
            )
        units.append(cut)
        num_files += len(found)
    files = [file for listing in listings for file in listing.files]
    manifest = Manifest(
        tuple(sources),
        tuple(file.path for file in files),
        np.repeat(np.arange(len(listings), dtype=np.int32), [len(listing.files) for listing in listings]),
        np.array([file.size for file in files], dtype=np.int64),
        tuple(scan.digest for scan in scans),
        tuple(file.version for file in files),
        *(np.concatenate(column) for column in zip(*units, strict=True)),
    )
    logger.info(
        "Data: files=%d rows=%s units=%d bytes=%d fingerprint=%s",
        len(files), "unknown" if manifest.num_rows is None else manifest.num_rows, manifest.num_units,
        int(manifest.unit_bytes.sum()), manifest.fingerprint,
    )  # fmt: skip
    return manifest


def cut_units(
    file: np.ndarray,
    part: np.ndarray,
    count: np.ndarray,
    size: np.ndarray,
    *,
    unit_bytes: int,
    minimum: int,
    least: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Units (file, part, first element, elements, bytes) of these parts of files, in their order.

    No unit is larger than `unit_bytes`, but for a single element, and there are at least `minimum`, but for data that
    has fewer elements. Empty parts have none.

    Args:
        file: [parts] number of the file that holds it.
        part: [parts] its number within the file.
        count: [parts] its elements.
        size: [parts] decoded bytes of its column.
        unit_bytes: most bytes of a unit.
        minimum: least number of units.
        least: elements that a unit should have, even if there are fewer units then.
    """
    kept = count > 0
    file, part, count, size = file[kept], part[kept], count[kept], size[kept]
    most = np.maximum(1, count // least)
    pieces = np.clip(-(-size // unit_bytes), 1, most)
    if pieces.sum() < minimum and len(count):
        pieces = np.maximum(pieces, np.minimum(most, -(-count // _longest_unit(count, pieces, minimum))))
    which = np.repeat(np.arange(len(count)), pieces)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = count[which] * piece // pieces[which]
    end = count[which] * (piece + 1) // pieces[which]
    share = (size[which].astype(np.float64) * ((end - first) / count[which])).astype(np.int64)
    return (
        file[which].astype(np.int32),
        part[which].astype(np.int32),
        first.astype(np.int64),
        (end - first).astype(np.int64),
        share,
    )


def verify_unchanged(manifest: Manifest, config: DataConfig) -> None:
    """Check that the configuration still means the files of the manifest: same paths, sizes and versions, else digests.

    Raises:
        DataChangedError: naming a file that is gone, new or different.
    """
    for number, (field, source) in enumerate(config.sources()):
        if is_pinned(manifest.sources[number].root):
            continue
        listing = list_source(source, field)
        if source.max_rows is not None:
            listing = up_to(listing, manifest.paths[np.flatnonzero(manifest.file_source == number)[-1]])
        numbers = np.flatnonzero(manifest.file_source == number).tolist()
        known = {manifest.paths[at]: at for at in numbers}
        now = {file.path: file for file in listing.files}
        for path in known:
            if path not in now:
                raise DataChangedError(changed(path, "it is gone"))
        for path in now:
            if path not in known:
                raise DataChangedError(changed(path, "it is new"))
        with concurrent.futures.ThreadPoolExecutor(_THREADS, "verify") as pool:
            check = functools.partial(_require_same, manifest, listing, source.column(field))
            for _ in pool.map(check, [now[path] for path in known], known.values()):
                pass


def require_sources(manifest: Manifest, config: DataConfig, roots: Sequence[str] | None = None) -> Manifest:
    """The manifest for the files where they are now: at `roots`, or where storage says if None.

    Raises:
        ConfigurationError: the run began with other columns or another number of sources.
    """
    wanted = config.sources()
    if len(wanted) != len(manifest.sources):
        raise ConfigurationError(
            f"{FIELD}: there are {len(wanted)} sources, but this run began with {len(manifest.sources)}; "
            f"put them back, or {ANOTHER_RUN}"
        )
    sources = []
    for number, ((field, source), known) in enumerate(zip(wanted, manifest.sources, strict=True)):
        column = source.column(field)
        if (column.kind, column.name) != (known.column.kind, known.column.name):
            raise ConfigurationError(
                f"{column.field}: {column.name!r}, but this run began with {known.column.name!r}; "
                f"put it back, or {ANOTHER_RUN}"
            )
        _require_rules(field, column, known.rules)
        root = roots[number] if roots is not None else root_now(source, field, known.root)
        sources.append(Source(root, known.format, column))
    return dataclasses.replace(manifest, sources=tuple(sources))


def _require_rules(field: str, column: Column, known: Mapping[str, str]) -> None:
    for key in {**known, **column.rules}:
        before, now = (rules.get(key, plain_rule(key, column.kind)) or "all" for rules in (known, column.rules))
        if before != now:
            raise ConfigurationError(
                f"{field}.{key}: {now!r}, but this run began with {before!r}; put it back, or start another run in "
                "another checkpointDir"
            )


def _require_same(manifest: Manifest, listing: Listing, column: Column, file: DataFile, number: int) -> None:
    if file.size != manifest.sizes[number]:
        raise DataChangedError(changed(file.path, f"its size was {manifest.sizes[number]} bytes, now {file.size}"))
    if file.version and file.version == manifest.versions[number]:
        return
    listing.format.open(listing.root, file, manifest.digests[number], column)


def _scan(listing: Listing, column: Column) -> list[FileScan]:
    """The scans of all files, with a line in the log now and then."""
    logger.info("Scanning %d %s files: root=%s", len(listing.files), listing.format.name, listing.root.url)
    scans: list[FileScan] = []
    told = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "scan") as pool:
        for scan in pool.map(lambda file: listing.format.scan(listing.root, file, column), listing.files):
            scans.append(scan)
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                logger.info("Files scanned: %d of %d", len(scans), len(listing.files))
    return scans


def _parts(scans: list[FileScan], first_file: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """File, number, elements and bytes of all parts, int64 [parts] each."""
    lengths = [len(scan.counts) for scan in scans]
    file = np.repeat(np.arange(first_file, first_file + len(scans)), lengths)
    part = np.concatenate([np.arange(length) for length in lengths])
    return file, part, np.concatenate([s.counts for s in scans]), np.concatenate([s.sizes for s in scans])


def _longest_unit(count: np.ndarray, parts: np.ndarray, minimum: int) -> int:
    """The largest number of elements that, as a limit for a unit, gives the minimum of units; 1 if nothing does."""
    low, high = 1, int(count.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.maximum(parts, -(-count // middle)).sum() >= minimum:
            low = middle
        else:
            high = middle - 1
    return low
