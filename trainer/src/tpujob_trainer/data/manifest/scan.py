"""Makes the manifest of a data set from its files, and checks that a configuration still refers to one."""

import concurrent.futures
import dataclasses
import functools
import logging
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tpujob_trainer.data.column import CODE, Column, plain_rule
from tpujob_trainer.data.config import FIELD, DataConfig
from tpujob_trainer.data.formats import FileScan
from tpujob_trainer.data.manifest.listing import (
    Listing,
    is_pinned,
    limited,
    list_source,
    require_one_format,
    root_now,
    up_to,
)
from tpujob_trainer.data.manifest.manifest import Manifest, Source
from tpujob_trainer.data.manifest.permutation import cut_units
from tpujob_trainer.data.sources.files import DataFile
from tpujob_trainer.storage.filesystems import is_on_disk
from tpujob_trainer.storage.versions import DataChangedError, changed, is_of_status, sampled_version
from tpujob_trainer.values.errors import ANOTHER_RUN, ConfigurationError

logger = logging.getLogger(__name__)

UNITS_PER_LANE = 8
"""Units that each lane should have at least: with one more unit than lanes, one lane would take twice as long for an
epoch as the others; with eight for each, an eighth longer."""

_LEAST_BYTES = 1024
"""Least size of a unit that is a range of bytes, so that most of them hold a row."""
_THREADS = 32
_TELL_SECONDS = 10


def make_manifest(config: DataConfig, *, batch_size: int | None = None) -> Manifest:
    """The manifest of the data that the configuration refers to now, cut into enough units for the lanes of a batch.

    Args:
        config: where the data is, and how large a unit may be.
        batch_size: rows of the global batch; None to cut by size alone.

    Raises:
        NotFoundError: no such file, or no permission.
        ConfigurationError: a file is not of its format or lacks the column, there are no rows at all, or files of
            another format would be left out.
    """
    minimum = UNITS_PER_LANE * (config.lanes or batch_size) if batch_size else 1
    listings = [list_source(source, field) for field, source in config.sources()]
    sources, scans, units, versions, num_files = [], [], [], [], 0
    for (field, source), listing in zip(config.sources(), listings, strict=True):
        require_one_format(listing, source, field)
        column = source.column(field)
        sources.append(Source(listing.root.url, listing.format.name, column, source.query))
        listing, found = limited(listing, _scan(listing, column), column, unit_bytes=config.unit_bytes)
        listings[len(sources) - 1] = listing
        scans += found
        versions += _versions(listing)
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
        tuple(versions),
        *(np.concatenate(column) for column in zip(*units, strict=True)),
    )
    logger.info(
        "Data: files=%d rows=%s units=%d bytes=%d fingerprint=%s",
        len(files), "unknown" if manifest.num_rows is None else manifest.num_rows, manifest.num_units,
        int(manifest.unit_bytes.sum()), manifest.fingerprint,
    )  # fmt: skip
    return manifest


def _scan(listing: Listing, column: Column) -> list[FileScan]:
    """The scans of all files; logs the progress."""
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


def _versions(listing: Listing) -> list[str]:
    """The version of each file, by which readers detect a replaced file; for files on a disk, with samples."""
    if not is_on_disk(listing.root.filesystem):
        return [file.version for file in listing.files]
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "sample") as pool:
        return list(pool.map(lambda file: sampled_version(listing.root.locate(file.path)), listing.files))


def _parts(scans: list[FileScan], first_file: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """File, number, elements and bytes of all parts, int64 [parts] each."""
    lengths = [len(scan.counts) for scan in scans]
    file = np.repeat(np.arange(first_file, first_file + len(scans)), lengths)
    part = np.concatenate([np.arange(length) for length in lengths])
    return file, part, np.concatenate([s.counts for s in scans]), np.concatenate([s.sizes for s in scans])


def verify_unchanged(manifest: Manifest, config: DataConfig) -> None:
    """Checks that the configuration still refers to the manifest's files: same paths, sizes and versions, else digests.

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
    """The manifest with the current roots of the files: `roots`, or those that storage reports if None.

    Raises:
        ConfigurationError: the run started with other columns, other rules of a column, or another number of sources.
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
        sources.append(Source(root, known.format, column, source.query))
    return dataclasses.replace(manifest, sources=tuple(sources))


def _require_rules(field: str, column: Column, known: Mapping[str, str]) -> None:
    for key in {**known, **column.rules}:
        before, now = (rules.get(key, plain_rule(key, column.kind)) or "all" for rules in (known, column.rules))
        if before != now and key.startswith(CODE):
            raise ConfigurationError(
                f"{field}.custom: {key.removeprefix(CODE)} has changed since this run began; put the code back, or "
                + ANOTHER_RUN
            )
        if before != now:
            raise ConfigurationError(
                f"{field}.{key}: {now!r}, but this run began with {before!r}; put it back, or start another run in "
                "another checkpointDir"
            )


def _require_same(manifest: Manifest, listing: Listing, column: Column, file: DataFile, number: int) -> None:
    if file.size != manifest.sizes[number]:
        raise DataChangedError(changed(file.path, f"its size was {manifest.sizes[number]} bytes, now {file.size}"))
    known = manifest.versions[number]
    on_disk = is_on_disk(listing.root.filesystem)
    if file.version and (is_of_status(known, file.version) if on_disk else file.version == known):
        return
    expected = dataclasses.replace(file, version=known) if on_disk else file
    listing.format.open(listing.root, expected, manifest.digests[number], column)
