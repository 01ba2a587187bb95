"""Writes a unit's rows as files: Parquet, Arrow IPC or safetensors, of a set size."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.corpus.extract.batches import shard_rows
from tpujob_trainer.corpus.workers.work import Compression, FileFormat, PackedFile
from tpujob_trainer.model.weights.safetensors import SAFETENSORS_DTYPES

SUFFIXES: dict[FileFormat, str] = {"parquet": ".parquet", "arrow": ".arrow", "safetensors": ".safetensors"}
ROW_GROUP_BYTES = 64 << 20
"""Bytes of values in a Parquet row group or an Arrow record batch: what a reader holds at a time."""


@dataclass(frozen=True)
class UnitTable:
    """The results of a unit, in the order of the corpus."""

    unit: int
    samples: np.ndarray
    """int64 [rows], the sample's number in the whole corpus."""
    rows: np.ndarray
    """int32 [rows], its position in the unit."""
    tokens: np.ndarray
    """int32, all tokens one after the other."""
    lengths: np.ndarray
    """int64 [rows], tokens of each."""
    columns: Mapping[str, Any]
    """Each `[vectors, D]`, for scales and numbers `[vectors]`; or an Arrow array of `[rows]`."""
    per_token: frozenset[str]
    """Columns in which each token has a vector; in the others each row has one."""

    @property
    def row_bytes(self) -> np.ndarray:
        """Bytes of each row's values and tokens: int64 [rows]."""
        made = self.lengths * self.tokens.itemsize
        for column, values in self.columns.items():
            vectors = self.lengths if self.has_tokens(column) else 1
            made = made + vectors * -(-values.nbytes // max(1, len(values)))
        return np.asarray(made, dtype=np.int64)

    def has_tokens(self, column: str) -> bool:
        """Whether the column, or the one whose scales it has, has a vector for each token."""
        return column in self.per_token or any(column == scales_of(each) for each in self.per_token)

    def checksum(self) -> str:
        """A hash of the rows' content: 32 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.samples, self.lengths, self.tokens):
            digest.update(np.ascontiguousarray(array).view(np.uint8))
        for name, values in sorted(self.columns.items()):
            digest.update(name.encode())
            digest.update(_content(values))
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
    """Writes the files of a unit, `name-0`, `name-1` and so on, and returns them; none for a unit without rows."""
    made = []
    for number, rows in enumerate(shard_rows(table.row_bytes, shard_bytes)):
        path = folder / f"{name}-{number}{SUFFIXES[file_format]}"
        if file_format == "safetensors":
            _write_safetensors(table, rows, path)
            made.append(PackedFile(path, rows.stop - rows.start))
            continue
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
    for column, values in table.columns.items():
        if isinstance(values, pa.Array):
            arrays[column] = values.slice(rows.start, count)
            fields.append(pa.field(column, values.type))
            continue
        has_tokens = table.has_tokens(column)
        array = _vectors(values[first:end] if has_tokens else values[rows])
        arrays[column] = pa.ListArray.from_arrays(offsets, array) if has_tokens else array
        fields.append(pa.field(column, arrays[column].type, metadata={"dtype": values.dtype.name}))
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def scales_of(column: str) -> str:
    """The name of the column with the scales of another one."""
    return f"{column}_scale"


def _content(values: Any) -> Any:
    """The values as bytes."""
    if isinstance(values, pa.Array):
        return json.dumps(values.to_pylist()).encode()
    return np.ascontiguousarray(values).view(np.uint8)


def _vectors(values: np.ndarray) -> Any:
    """`[vectors, D]` or `[vectors]` as an Arrow array, without a copy."""
    flat = _plain(values.ravel())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if values.ndim > 1 else flat


def _plain(flat: np.ndarray) -> Any:
    """The Arrow array of flat values: bfloat16 as its bits."""
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


def _write_safetensors(table: UnitTable, rows: slice, path: Path) -> None:
    """Writes `sample`, `row`, `length` `[rows]`, `tokens` `[tokens]`, and each column `[vectors, D]` in its type."""
    ends = np.concatenate([[0], np.cumsum(table.lengths)])
    tokens = slice(ends[rows.start], ends[rows.stop])
    tensors = {
        "sample": table.samples[rows],
        "length": table.lengths[rows],
        "row": table.rows[rows],
        "tokens": table.tokens[tokens],
        **{name: values[tokens if table.has_tokens(name) else rows] for name, values in table.columns.items()},
    }
    header, end = {}, 0
    for name, array in tensors.items():
        first, end = end, end + array.nbytes
        header[name] = {
            "dtype": SAFETENSORS_DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [first, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _value_type(kind: Any) -> Any:
    while pa.types.is_nested(kind):
        kind = kind.value_type
    return kind


def _leaf(kind: Any) -> str:
    """The Parquet path from a column to its values."""
    path = []
    while pa.types.is_nested(kind):
        path += ["list", "element"]
        kind = kind.value_type
    return ".".join(path)
