"""The interface of a file format for the manifest and the lanes.

A file has parts, and a part has elements, which can be counted before anything is read. A unit is a range of elements.

- Parquet: a part is a row group, an element a row.
- Array records: one part, an element is a record.
- Lines and TFRecords: one part, an element is a byte; a range means the rows that begin in it, so that no reader has to
  find the beginnings first.
- Files that can only be read from the beginning: one part of one element, the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.sources.files import DataFile, DataRoot


@dataclass(frozen=True)
class FileScan:
    """Facts about a file that are known without reading all of it."""

    digest: str
    """32 hexadecimal digits, which change with the content as far as a few reads can detect."""
    counts: np.ndarray
    """int64 [parts], elements."""
    sizes: np.ndarray
    """int64 [parts], decoded bytes of the column, or an estimate."""


@dataclass(frozen=True)
class RawRows:
    """Rows as the file has them."""

    column: Any
    """Arrow array or chunked array [rows], of the type that the kind of column calls for; it may be shared."""
    refused: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For each cause, bool [rows]: rows that cannot be read, such as a line that is not JSON; null in the column."""


class OpenedFile(Protocol):
    """A file that was checked to be the one of the manifest; may be used by several threads."""

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of these elements, in the order of the file."""


class Format(Protocol):
    """A file format."""

    @property
    def name(self) -> str:
        """As in `spec.trainer.data.format`."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of the names of such files."""

    @property
    def elements(self) -> str:
        """What its elements are: rows, bytes or files."""

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """The parts of a file.

        Raises:
            ConfigurationError: the file is not of this kind, or has no such column.
            NotFoundError: it is gone, or may not be read.
        """

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedFile:
        """The file, after a check that it is the one whose scan had this digest.

        Raises:
            DataChangedError: it is another one.
            NotFoundError: it is gone, or may no longer be read.
        """
