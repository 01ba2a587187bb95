"""Reads the values of an extraction row by row as NumPy arrays, for programs that train on them.

It reads every file format and type of value, from any storage; of remote parquet files only the requested columns.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.corpus.extract.description import TASK
from tpujob_trainer.corpus.extract.inspection import Inspection
from tpujob_trainer.corpus.extract.shards import scales_of
from tpujob_trainer.corpus.workers.results import OutputFile
from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.model.weights.safetensors import NUMPY_NAMES
from tpujob_trainer.storage.errors import is_out_of_reach
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError, TrainerError
from tpujob_trainer.values.json_object import damaged, json_object

MOST_HEADER_BYTES = 100 << 20
"""Of a safetensors file; the limit of its own library."""
REMEDY = "`tpujob extract verify` names what else is damaged"
_OF_ROWS = ("sample", "unit", "row", "tokens", "length")


@dataclass(frozen=True)
class Activations:
    """One row of the corpus. T tokens, D width."""

    sample: int
    """Its number in the corpus, whichever worker made it."""
    tokens: np.ndarray
    """int32 [T]."""
    values: Mapping[str, np.ndarray]
    """By column, such as `layer_15_residual`: `[T, D]`, or `[D]` if one vector of each row was kept. In the type
    that was stored, but float32 for int8 with scales."""


@dataclass(frozen=True)
class _Part:
    """Rows that are read together."""

    samples: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray
    columns: Mapping[str, np.ndarray]
    per_token: frozenset[str]


def read_activations(
    directory: str, columns: Sequence[str] | None = None, *, part: tuple[int, int] = (0, 1), partial: bool = False
) -> Iterator[Activations]:
    """The rows of an extraction in the order of the corpus, read lazily.

    Args:
        directory: the `checkpointDir` of a job with `task: extract`, `embed` or `score`; local or an address.
        columns: those that are read; None: all that have values.
        part: `(index, count)` reads every count-th file from the index-th on, so that processes divide the rows.
        partial: read the finished units, even if others are missing.

    Raises:
        NotFoundError: there is no extraction.
        ConfigurationError: units are missing, or there is no such column.
    """
    inspection = Inspection(directory)
    described = inspection.described
    results = sorted((each.result for each in inspection.finished()), key=lambda result: result.unit)
    if len(results) < int(described["units"]) and not partial:
        raise ConfigurationError(
            f"{directory}: {len(results)} of {described['units']} units are done; wait, or pass partial=True to read "
            "those that are"
        )
    index, count = part
    if not 0 <= index < count:
        raise ConfigurationError(f"part: {part} is no (index, count) with 0 <= index < count")
    files = [file for result in results for file in result.files][index::count]
    block = f"spec.trainer.{described.get(TASK)}"
    has_tokens = described.get(f"{block}.positions", "all") == "all"
    return _rows(directory, files, columns, has_tokens=has_tokens)


def _rows(
    directory: str, files: Sequence[OutputFile], columns: Sequence[str] | None, *, has_tokens: bool
) -> Iterator[Activations]:
    root = open_root(directory.rstrip("/"))
    for file in files:
        try:
            with contextlib.closing(root.open(file.name, file.bytes)) as opened:
                if file.name.endswith(".safetensors"):
                    parts = _of_safetensors(opened, columns, file.name, has_tokens=has_tokens)
                else:
                    parts = _of_arrow(opened, columns, file.name)
                for part in parts:
                    yield from _rows_of(part)
        except TrainerError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{directory}/{file.name}: is gone; {REMEDY}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise damaged(f"{directory}/{file.name}", error, REMEDY) from error
        except OSError as error:
            if type(error) is not OSError or error.errno is not None or is_out_of_reach(error):
                raise  # of storage; pyarrow's own errors about file content have no errno and no subclass
            raise damaged(f"{directory}/{file.name}", error, REMEDY) from error


def _rows_of(part: _Part) -> Iterator[Activations]:
    ends = np.cumsum(part.lengths)
    for row, (sample, end) in enumerate(zip(part.samples.tolist(), ends.tolist(), strict=True)):
        tokens = slice(end - int(part.lengths[row]), end)
        values = {name: held[tokens if name in part.per_token else row] for name, held in part.columns.items()}
        yield Activations(sample, part.tokens[tokens], values)


def _of_arrow(opened: Any, columns: Sequence[str] | None, name: str) -> Iterator[_Part]:
    if name.endswith(".parquet"):
        parquet = pq.ParquetFile(opened)
        schema = parquet.schema_arrow
        wanted = _wanted(schema.names, columns, name, {each for each in schema.names if _is_value(schema.field(each))})
        for group in range(parquet.num_row_groups):
            for batch in parquet.read_row_group(group, columns=["sample", "tokens", *wanted]).to_batches():
                yield _part_of(batch, schema, wanted)
        return
    with pa.ipc.open_file(opened) as reader:
        schema = reader.schema
        wanted = _wanted(schema.names, columns, name, {each for each in schema.names if _is_value(schema.field(each))})
        for number in range(reader.num_record_batches):
            yield _part_of(reader.get_batch(number), schema, wanted)


def _part_of(batch: Any, schema: Any, wanted: Sequence[str]) -> _Part:
    tokens = batch.column("tokens")
    columns, per_token = {}, set()
    for name in wanted:
        array = batch.column(name)
        if pa.types.is_list(array.type):
            per_token.add(name)
            array = array.flatten()
        shape = (len(array), array.type.list_size) if pa.types.is_fixed_size_list(array.type) else (len(array),)
        flat = array.flatten() if len(shape) > 1 else array
        values = flat.to_numpy(zero_copy_only=False)
        if (schema.field(name).metadata or {}).get(b"dtype") == b"bfloat16":
            values = values.view(ml_dtypes.bfloat16)
        columns[name] = values.reshape(shape)
    return _Part(
        batch.column("sample").to_numpy(),
        tokens.value_lengths().to_numpy(zero_copy_only=False),
        tokens.flatten().to_numpy(),
        _scaled(columns),
        frozenset(per_token),
    )


def _of_safetensors(opened: Any, columns: Sequence[str] | None, name: str, *, has_tokens: bool) -> Iterator[_Part]:
    size = int.from_bytes(opened.read(8), "little")
    if size > MOST_HEADER_BYTES:
        raise ValueError(f"a header of {size} bytes")
    header = json_object(opened.read(size))

    def read(tensor: str) -> np.ndarray:
        dtype, shape = np.dtype(NUMPY_NAMES[header[tensor]["dtype"]]), header[tensor]["shape"]
        begin, end = header[tensor]["data_offsets"]
        if not 0 <= begin <= end or math.prod(shape) * dtype.itemsize != end - begin:
            raise ValueError(f"{tensor} of {shape} in {end - begin} bytes")
        opened.seek(8 + size + begin)
        return np.frombuffer(opened.read(end - begin), dtype=dtype).reshape(shape)

    wanted = _wanted(list(header), columns, name, set(header) - set(_OF_ROWS))
    lengths, tokens = read("length"), read("tokens")
    held = {each: read(each) for each in wanted}
    per_token = {each for each, values in held.items() if has_tokens and len(values) == len(tokens)}
    yield _Part(read("sample"), lengths, tokens, _scaled(held), frozenset(per_token))


def _wanted(names: Sequence[str], columns: Sequence[str] | None, file: str, valued: set[str]) -> list[str]:
    """The columns to read: those asked for, with their scales."""
    scales = {scales_of(name) for name in valued} & valued
    offered = [name for name in names if name in valued - scales and name not in _OF_ROWS]
    if columns is None:
        chosen = offered
    else:
        chosen = list(columns)
        for name in chosen:
            if name not in offered:
                raise ConfigurationError(f"columns: {name!r} is not in {file}, which has {', '.join(offered)}")
    return [*chosen, *(scales_of(name) for name in chosen if scales_of(name) in scales)]


def _is_value(field: Any) -> bool:
    """Whether a column holds numbers that were computed from the tokens."""
    return b"dtype" in (field.metadata or {})


def _scaled(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns without scales: their values are multiplied by these."""
    made = {}
    for name, values in columns.items():
        if any(name == scales_of(each) for each in columns):
            continue
        scales = columns.get(scales_of(name))
        made[name] = values if scales is None else values.astype(np.float32) * scales[..., None]
    return made
