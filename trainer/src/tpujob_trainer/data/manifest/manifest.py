"""The data set as a run knows it: sources, their files, and units cut out of the files' parts.

Made once by process 0 from a few reads of each file, kept beside the checkpoint as one parquet table, and read by all
other processes. A unit is a range of elements of one part (formats/format.py), small enough to be held and shuffled in
memory.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.sources.files import DataFile


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
    """What is read from them."""
    query: str = field(default="", repr=False)
    """Of the address, from the current configuration; it is not written into the manifest."""
    rules_then: Mapping[str, str] | None = None
    """`Column.rules` of the run that wrote the manifest, until they are compared; None: those of the column."""

    @property
    def rules(self) -> Mapping[str, str]:
        """Further settings that the rows and their tokens depend on."""
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
    """The digest of each file, as its format computes it."""
    versions: tuple[str, ...]
    """The version of each file in its storage; empty: the storage states none."""
    unit_file: np.ndarray
    """int32 [units], ascending."""
    unit_part: np.ndarray
    """int32 [units]"""
    unit_first: np.ndarray
    """int64 [units], within the part."""
    unit_count: np.ndarray
    """int64 [units], elements: rows, bytes or files."""
    unit_bytes: np.ndarray
    """int64 [units], decoded bytes of the column, as the scan of the file gives them."""

    @property
    def num_units(self) -> int:
        """The number of units of all sources."""
        return len(self.unit_file)

    @functools.cached_property
    def source_units(self) -> tuple[range, ...]:
        """The units of each source."""
        of_unit = self.file_source[self.unit_file]
        ends = np.searchsorted(of_unit, np.arange(len(self.sources)), side="right").tolist()
        return tuple(range(begin, end) for begin, end in zip([0, *ends], ends, strict=False))

    @functools.cached_property
    def num_rows(self) -> int | None:
        """The number of rows of all sources; None: a format does not know it without reading."""
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
        """The name of the row at a place of a unit, for messages."""
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
