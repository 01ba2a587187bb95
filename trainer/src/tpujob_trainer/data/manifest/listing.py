"""Lists the files of a source: which of those at its address belong to it, their format, and its first rows.

Files are taken in the order of their names, and rows in the order of their file. A file that does not state its number
of rows (lines, TFRecords) is read from its beginning until they are counted.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpujob_contract import storage_address
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.config import SourceConfig
from tpujob_trainer.data.formats import FORMATS, FileScan, Format, format_named, is_of
from tpujob_trainer.data.manifest import left_out
from tpujob_trainer.data.manifest.left_out import LeftOut, known_by_content
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained, find_root, list_files
from tpujob_trainer.data.sources.folder_kinds import split_of
from tpujob_trainer.data.sources.named_data import dataset_files, find_tfds_version
from tpujob_trainer.data.sources.saved_dataset import saved_files
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError


def limited(
    listing: Listing, scans: Sequence[FileScan], column: Column, *, unit_bytes: int
) -> tuple[Listing, list[FileScan]]:
    """The files and parts that hold the first rows, the last part cut after the last row; all if there is no limit.

    Raises:
        ConfigurationError: one of the files can only be read whole.
    """
    if column.max_rows is None:
        return listing, list(scans)
    left, kept = column.max_rows, []
    for at, scan in enumerate(scans):
        if left <= 0:
            break
        counts = np.zeros_like(scan.counts)
        for part, count in enumerate(scan.counts.tolist()):
            counts[part], rows = _elements(listing, at, scan, part, count, left, column, unit_bytes)
            left -= rows
        sizes = (scan.sizes * np.divide(counts, np.maximum(scan.counts, 1))).astype(np.int64)
        kept.append(dataclasses.replace(scan, counts=counts, sizes=sizes))
    return dataclasses.replace(listing, files=listing.files[: len(kept)]), kept


def up_to(listing: Listing, last: str) -> Listing:
    """The files up to and including `last`; files with later names are beyond the limit."""
    return dataclasses.replace(listing, files=[file for file in listing.files if file.path <= last])


def _elements(
    listing: Listing, at: int, scan: FileScan, part: int, count: int, rows: int, column: Column, unit_bytes: int
) -> tuple[int, int]:
    """The number of elements of a part that hold its first rows, and the number of these rows."""
    if listing.format.elements == "rows":
        return min(count, rows), min(count, rows)
    file = listing.files[at]
    if listing.format.elements == "files" or count <= 1 < file.size:
        raise ConfigurationError(
            f"{column.field.rpartition('.')[0]}.maxRows: {file.path!r} can only be read whole; give files that can be "
            "cut (parquet, plain jsonl or text, TFRecords, array records), or leave maxRows out"
        )
    with explained(listing.root.locate(file.path)):
        opened = listing.format.open(listing.root, file, scan.digest, column)
        return _counted(lambda first, size: len(opened.read(part, first, size).column), count, rows, unit_bytes)


def _counted(rows_of: Callable[[int, int], int], count: int, wanted: int, piece: int) -> tuple[int, int]:
    """The fewest elements with `wanted` rows, or all, and their rows; `rows_of(first, elements)` counts its rows."""
    first, rows = 0, 0
    while first < count:
        size = min(piece, count - first)
        here = rows_of(first, size)
        if rows + here >= wanted:
            low, high = 1, size
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if rows + rows_of(first, middle) >= wanted else (middle + 1, high)
            return first + low, wanted
        first, rows = first + size, rows + here
    return count, rows


logger = logging.getLogger(__name__)

MOST_LEFT_OUT = 0.01
"""The largest part of the bytes that may be in another format than the rows that are read."""
_COMMIT = re.compile("@[0-9a-f]{40}")


@dataclass(frozen=True)
class Listing:
    """Files of one format below one root, sorted by path."""

    root: DataRoot
    format: Format
    files: list[DataFile]
    left: list[LeftOut] = field(default_factory=list)
    """The other files there, without those that describe the data."""


def list_source(config: SourceConfig, field: str) -> Listing:
    """The files that a source currently refers to.

    Raises:
        NotFoundError: nothing is there, nothing there can be read as data, or it may not be read.
        ConfigurationError: there is no such configuration or split.
    """
    if config.dataset is not None:
        what, where = config.dataset, f"{field}.dataset"
        root, files = dataset_files(config, field)
    else:
        assert config.path is not None
        what, where = config.path, f"{field}.path"
        root, files = list_files(config.path, where)
        saved = saved_files(root, files, config.split, field)
        version = find_tfds_version(root, files) if saved is None else None
        if version is not None:
            return Listing(root, format_named(version.format), version.files_of(config.split, field))
        files, is_of_split = saved or (files, False)
        files = files if is_of_split else _of_split(config, files, field)
    return _of_one_format(config, root, files, what, where)


def _of_split(config: SourceConfig, files: list[DataFile], field: str) -> list[DataFile]:
    """The files of the split that is asked for; all, with a warning if there are several splits, if none is."""
    there = sorted({split for file in files if (split := split_of(file.path)) is not None})
    if config.split is None:
        if "train" in there and len(there) > 1:
            logger.warning("%s: %s are read together; split chooses one of them", config.path, ", ".join(there))
        return files
    if not there:
        raise ConfigurationError(
            f"{field}.split: {config.split!r}, but {config.path!r} is not the folder of a TFDS version, and has no "
            "splits; write the split into the path, or leave the key out"
        )
    wanted = split_of(f"{config.split}/")
    found = [file for file in files if split_of(file.path) == wanted is not None]
    if not found:
        raise ConfigurationError(
            f"{field}.split: {config.split!r} is not a split of {config.path!r}; there are {', '.join(there)}"
        )
    return found


def is_pinned(root: str) -> bool:
    """Whether a root is a commit, whose files cannot change."""
    return storage_address.scheme_of(root) == "hf" and _COMMIT.search(root) is not None


def root_now(config: SourceConfig, field: str, begun_with: str) -> str:
    """The URL of the current root of a continued run's files: data may move, but a commit does not change."""
    if is_pinned(begun_with):
        return begun_with
    if config.dataset is not None:
        return dataset_files(config, field)[0].url
    assert config.path is not None
    return find_root(config.path, f"{field}.path").url


def _of_one_format(config: SourceConfig, root: DataRoot, files: list[DataFile], what: str, where: str) -> Listing:
    wanted = [format_named(config.format)] if config.format else FORMATS
    for known in wanted:
        fitting = [file for file in files if is_of(known, file.path)]
        if config.format and not fitting and len(files) == 1:
            fitting = files  # one file that was named, whatever its name
        if fitting:
            return _listing(root, known, files, fitting, what)
    if not config.format:
        by_content, _ = known_by_content(root, files)
        for name, found in by_content.items():
            if found:
                return _listing(root, format_named(name), files, found, what)
    suffixes = ", ".join(known.suffixes[0] for known in wanted)
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    none = "none ends with" if config.format else "none is text or ends with"
    raise NotFoundError(
        f"{where}: {what!r} matches {count}, {files[0].path!r} for one, but {none} {suffixes}; "
        "give such files, or make some with `tpujob data from-folder`"
    )


def _listing(root: DataRoot, known: Format, files: list[DataFile], fitting: list[DataFile], what: str) -> Listing:
    """The files of a format; for texts, also those whose content is text. Logs the files that are left out."""
    named = {file.path for file in fitting}
    others = [file for file in files if file.path not in named]
    of_others = {file.path for file in others if any(is_of(each, file.path) for each in FORMATS)}
    if known.name == "text":
        # A file of another format is data of its own, even if its content is text.
        taken, left = known_by_content(root, [file for file in others if file.path not in of_others])
        left += [LeftOut(file, "JSON", is_data=True) for file in taken["jsonl"]]
        left += [LeftOut(file, "not text", is_data=True) for file in others if file.path in of_others]
        fitting = sorted([*fitting, *taken["text"]], key=lambda file: file.path)
    else:
        there = [file for file in others if not left_out.describes(file.path)]
        left = [LeftOut(file, f"not {known.name}", is_data=file.path in of_others) for file in there]
    left_out.tell(what, len(files), left)
    return Listing(root, known, fitting, left)


def require_one_format(listing: Listing, config: SourceConfig, field: str) -> None:
    """Refuses data in two formats, of which one would be left out, unless the configuration says which is meant.

    Raises:
        ConfigurationError: naming the first files.
    """
    left = [each.file for each in listing.left if each.is_data]
    left_bytes, read_bytes = (sum(file.size for file in files) for files in (left, listing.files))
    if config.format is None and left_bytes > MOST_LEFT_OUT * (left_bytes + read_bytes):
        raise ConfigurationError(
            f"{field}.{'path' if config.path else 'dataset'}: {config.path or config.dataset!r} has "
            f"files in two formats, {len(listing.files)} {listing.format.name} and {len(left)} other, {left[0].path!r} "
            f"for one; write format: {listing.format.name} to read those alone, or give a pattern for those that are "
            "meant"
        )
