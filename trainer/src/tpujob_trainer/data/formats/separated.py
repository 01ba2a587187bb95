"""Tables as text: values separated by commas, tabs or semicolons, under a first line that names the columns.

A line break may be inside quotes, so that rows are found only by reading from the beginning: a file is one element.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import read_ends, read_whole, require_content
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.unpacking import EXPANSION, codec_of, unpacked
from tpujob_trainer.data.formats.values import BROKEN, rows_of_values
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.storage.versions import PATH
from tpujob_trainer.values.errors import ConfigurationError

_SEPARATORS = ",\t;|"


class Separated:
    """CSV and TSV files."""

    name = "csv"
    suffixes = FILE_ENDINGS["csv"]
    elements = "files"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part of one element, the file."""
        digest, start = read_ends(root, file, is_listed=True)
        codec = codec_of(start, root.locate(file.path))
        if codec is None and start:
            _require_columns(start, root.locate(file.path), column)
        size = file.size * EXPANSION if codec else file.size
        return FileScan(digest, np.array([min(file.size, 1)], dtype=np.int64), np.array([size], dtype=np.int64))

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedTable:
        """The file, checked by its size and both of its ends."""
        return OpenedTable(root, file, column, require_content(root, file, digest))


class OpenedTable:
    """One file."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column, start: bytes) -> None:
        self._root = root
        self._file = file
        self._column = column
        self._name = root.locate(file.path)
        self._codec = codec_of(start, self._name)

    def read(self, part: int, first: int, count: int) -> RawRows:
        """All rows; those with more or fewer values than the first line has names are malformed, at the end."""
        column = self._column
        text = unpacked(read_whole(self._root, self._file), self._codec, self._name, column)
        separator = _require_columns(text[: 64 << 10], self._name, column)
        malformed: list[Any] = []

        def skip(row: Any) -> str:
            malformed.append(BROKEN)
            return "skip"

        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(text),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=min(max(1 << 20, len(text) + 1), (1 << 31) - 1)
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=separator, newlines_in_values=True, invalid_row_handler=skip
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(column.names), column_types=dict.fromkeys(column.names, pa.large_binary())
                ),
            )
        except pa.ArrowException as error:
            raise ConfigurationError(f"{PATH}: {self._name!r} cannot be read as a table: {error}") from error
        values = table.to_pylist() if column.kind == "row" else table.column(0).to_pylist()
        if column.kind == "tokens":
            values = [_ids(value) for value in values]
        return rows_of_values([*values, *malformed], column)


def _require_columns(start: bytes, name: str, column: Column) -> str:
    """The separator of a table that starts with this text, after a check that its first line names the columns."""
    first = start.decode("utf-8-sig", errors="replace").lstrip("\r\n")
    line = first.partition("\n")[0]
    separator = max(_SEPARATORS, key=line.count)
    there = next(csv.reader(io.StringIO(first), delimiter=separator), [])
    for wanted in column.names:
        if there.count(wanted) != 1:
            raise ConfigurationError(
                f"{column.field_of(wanted)}: {wanted!r} is {'twice' if wanted in there else 'not'} among the columns "
                f"that the first line of {name!r} names; there are {', '.join(there)[:300]}"
            )
    return separator


def _ids(value: bytes) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return BROKEN
