"""A unit's rows as files: Parquet or Arrow IPC, of a set size."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.extract.batches import shard_rows
from tpujob_trainer.extract.config import Compression, FileFormat
from tpujob_trainer.workers.engine import PackedFile

SUFFIXES: dict[FileFormat, str] = {"parquet": ".parquet", "arrow": ".arrow"}
ROW_GROUP_BYTES = 64 << 20
"""Of values in a row group of parquet or a record batch of Arrow: what a reader holds at a time."""


@dataclass(frozen=True)
class UnitTable:
    """What a unit came to, in the order of the corpus."""

    unit: int
    samples: np.ndarray
    """int64 [rows], the sample's number in the whole corpus."""
    rows: np.ndarray
    """int32 [rows], its place in the unit."""
    tokens: np.ndarray
    """int32, all tokens one after the other."""
    lengths: np.ndarray
    """int64 [rows], tokens of each."""
    columns: Mapping[str, np.ndarray]
    """For each column `[vectors, D]`; for scales `[vectors]`."""
    is_per_token: bool
    """Whether each token has a vector, or each row."""

    @property
    def row_bytes(self) -> np.ndarray:
        """int64 [rows], values and tokens."""
        vector = sum(values.nbytes // max(1, len(values)) for values in self.columns.values())
        vectors = self.lengths if self.is_per_token else np.ones_like(self.lengths)
        return self.lengths * self.tokens.itemsize + vectors * vector

    def checksum(self) -> str:
        """32 hexadecimal digits of all that is in the rows."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.samples, self.lengths, self.tokens):
            digest.update(np.ascontiguousarray(array).view(np.uint8))
        for name, values in sorted(self.columns.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(values).view(np.uint8))
        return digest.hexdigest()


def write_shards(
    table: UnitTable,
    folder: Path,
    name: str,
    *,
    file_format: FileFormat,
    compression: Compression,
    shard_bytes: int,
) -> list[PackedFile]:
    """The files of a unit, `name-0`, `name-1` and so on; a unit without rows has none."""
    made = []
    for number, rows in enumerate(shard_rows(table.row_bytes, shard_bytes)):
        path = folder / f"{name}-{number}{SUFFIXES[file_format]}"
        arrow = to_arrow(table, rows)
        largest = max(1, int(table.row_bytes[rows].max()))
        group = max(1, ROW_GROUP_BYTES // largest)
        if file_format == "parquet":
            _write_parquet(arrow, path, compression, group)
        else:
            _write_arrow(arrow, path, compression, group)
        made.append(PackedFile(path, len(arrow)))
    return made


def to_arrow(table: UnitTable, rows: slice) -> Any:
    """Some rows as an Arrow table."""
    ends = np.concatenate([[0], np.cumsum(table.lengths)])
    first, end = ends[rows.start], ends[rows.stop]
    offsets = pa.array((ends[rows.start : rows.stop + 1] - first).astype(np.int32))
    count = rows.stop - rows.start
    arrays = {
        "sample": pa.array(table.samples[rows]),
        "unit": pa.array(np.full(count, table.unit, dtype=np.int32)),
        "row": pa.array(table.rows[rows]),
        "tokens": pa.ListArray.from_arrays(offsets, pa.array(table.tokens[first:end])),
    }
    fields = [pa.field(column, array.type) for column, array in arrays.items()]
    vectors = slice(first, end) if table.is_per_token else rows
    for column, values in table.columns.items():
        array = _vectors(values[vectors])
        arrays[column] = pa.ListArray.from_arrays(offsets, array) if table.is_per_token else array
        fields.append(pa.field(column, arrays[column].type, metadata={"dtype": values.dtype.name}))
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _vectors(values: np.ndarray) -> Any:
    """`[vectors, D]` or `[vectors]` without a copy."""
    flat = _plain(values.ravel())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if values.ndim > 1 else flat


def _plain(flat: np.ndarray) -> Any:
    """As Arrow has it: bfloat16 as its bits."""
    return pa.array(flat.view(np.uint16) if flat.dtype.name == "bfloat16" else flat)


def _write_parquet(table: Any, path: Path, compression: Compression, group: int) -> None:
    values = [f"{field.name}.{_leaf(field.type)}" for field in table.schema]
    split = [
        column for column, field in zip(values, table.schema, strict=True) if _value_type(field.type) == pa.float16()
    ]
    pq.write_table(
        table,
        path,
        compression=compression,
        row_group_size=group,
        use_dictionary=False,
        write_statistics=["sample", "unit", "row"],
        use_byte_stream_split=split or False,
    )


def _write_arrow(table: Any, path: Path, compression: Compression, group: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=group):
            writer.write_batch(batch)


def _value_type(kind: Any) -> Any:
    while pa.types.is_nested(kind):
        kind = kind.value_type
    return kind


def _leaf(kind: Any) -> str:
    """The path below a column to its values, as parquet calls it."""
    path = []
    while pa.types.is_nested(kind):
        path += ["list", "element"]
        kind = kind.value_type
    return ".".join(path)
