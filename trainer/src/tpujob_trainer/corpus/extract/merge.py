"""Checks the files of an extraction against their results, and makes them one data set.

No file is copied: the index names the files of the results, and `datasets.load_dataset` opens those in the card's list.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.corpus.extract import description
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult, add_statistics
from tpujob_trainer.storage.directory import ListedFile


class Problem(NamedTuple):
    """What is wrong with a result."""

    text: str
    unit: int | None
    """The unit that has to be made again; None: nothing that exists is damaged."""


def problems(
    results: Sequence[UnitResult],
    listed: Mapping[str, ListedFile],
    *,
    units: int | None,
    unit_rows: np.ndarray | None,
    read_crc32c: Callable[[ListedFile], str] | None,
    read_all: bool = False,
) -> Iterator[Problem]:
    """Each problem; nothing if the result is complete and undamaged.

    Args:
        results: of all units that are done.
        listed: the existing files, by name.
        units: length of the whole list; None: missing units are no problem.
        unit_rows: int64 [units], rows of the corpus in each; None if they were not counted.
        read_crc32c: returns the checksum of a file's content; None: no file is read.
        read_all: whether files are read even if storage has its own checksum.
    """
    done = {result.unit for result in results}
    if missing := max(0, (units or 0) - len(done)):
        first = itertools.islice((unit for unit in range(units or 0) if unit not in done), 5)
        shown = ", ".join(map(str, first)) + (", …" if missing > 5 else "")
        yield Problem(f"{missing} of {units} units are not done: {shown}", None)
    for result in results:
        texts = list(_unit_problems(result, unit_rows))
        for file in result.files:
            texts += _file_problems(file, listed.get(file.name), read_crc32c, read_all=read_all)
        yield from (Problem(text, result.unit) for text in texts)


def leftovers(results: Sequence[UnitResult], listed: Mapping[str, ListedFile]) -> list[ListedFile]:
    """Files that belong to no result: their workers were killed, or came too late."""
    named = {file.name for result in results for file in result.files}
    return [file for name, file in listed.items() if name not in named]


def _unit_problems(result: UnitResult, unit_rows: np.ndarray | None) -> Iterator[str]:
    in_files = sum(file.rows for file in result.files)
    if in_files != result.rows:
        yield f"unit {result.unit}: its files have {in_files} rows, it should have {result.rows}"
    accounted = result.rows + sum(result.skipped.values())
    if unit_rows is not None and accounted != (in_corpus := unit_rows[result.unit : result.unit + 1].sum()):
        yield (
            f"unit {result.unit}: {result.rows} rows and {accounted - result.rows} that were left out, but the corpus "
            f"has {in_corpus} there"
        )


def _file_problems(
    file: OutputFile, listed: ListedFile | None, read_crc32c: Callable[[ListedFile], str] | None, *, read_all: bool
) -> Iterator[str]:
    if listed is None:
        yield f"{file.name}: is gone"
        return
    if listed.bytes != file.bytes:
        yield f"{file.name}: has {listed.bytes} bytes, it should have {file.bytes}"
        return
    checksum = read_crc32c(listed) if read_crc32c and (read_all or listed.crc32c is None) else listed.crc32c
    if checksum not in (None, file.crc32c):
        yield f"{file.name}: its CRC32C is {checksum}, it should be {file.crc32c}"


_TITLES = {"extract": "Activations", "score": "Losses", "embed": "Embeddings", "generate": "Completions"}

INDEX, STATISTICS, CARD = "index.parquet", "statistics.json", "README.md"


def index(results: Sequence[UnitResult]) -> bytes:
    """A parquet table with a row for each file, in the order of samples."""
    lines = [(result.unit, file) for result in sorted(results, key=lambda r: r.unit) for file in result.files]
    table = pa.table(
        {
            "file": [file.name for _, file in lines],
            "unit": pa.array([unit for unit, _ in lines], pa.int32()),
            "rows": pa.array([file.rows for _, file in lines], pa.int64()),
            "bytes": pa.array([file.bytes for _, file in lines], pa.int64()),
            "crc32c": [file.crc32c for _, file in lines],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def statistics(results: Sequence[UnitResult]) -> dict[str, Any]:
    """Rows, tokens, bytes, files, and for each column count, mean, standard deviation, extremes, non-finite values."""
    columns: dict[str, list[float]] = {}
    for result in results:
        for column, sums in result.statistics.items():
            columns[column] = add_statistics(columns.get(column), sums)
    return {
        "rows": sum(result.rows for result in results),
        "tokens": sum(result.tokens for result in results),
        "bytes": sum(result.num_bytes for result in results),
        "files": sum(len(result.files) for result in results),
        "columns": {column: _of_column(sums) for column, sums in sorted(columns.items())},
    }


def card(described: Mapping[str, Any], results: Sequence[UnitResult], found: Mapping[str, Any]) -> str:
    """The text of README.md: the list of files, for `datasets`, and what they contain, for people."""
    files = [file.name for result in sorted(results, key=lambda r: r.unit) for file in result.files]
    listed = "\n".join(f"    - {name}" for name in files)
    columns = "\n".join(
        f"| {name} | {of['count']:,} | {of['mean']:.6g} | {of['std']:.6g} | {of['min']:.6g} | {of['max']:.6g} "
        f"| {of['not_finite']:,} |"
        for name, of in found["columns"].items()
    )
    facts = "\n".join(f"- {key}: `{json.dumps(value)}`" for key, value in described.items())
    block = f"spec.trainer.{described.get(description.TASK)}"
    dtype = described.get(f"{block}.dtype")
    note = {
        "bfloat16": "Values are the 16 bits of a bfloat16 each, as uint16: `array.view(ml_dtypes.bfloat16)`.\n\n",
        "int8": "A value is the int8 times the number in the column of the same name with `_scale`.\n\n",
    }.get(str(dtype), "")
    if len(results) < int(described.get("units", 0)):
        note = f"**Only {len(results)} of {described['units']} units** were done when this was written.\n\n{note}"
    front = f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n{listed}\n---\n\n"
    if described.get(f"{block}.format") == "safetensors":
        front = ""
        note = "" if dtype == "bfloat16" else note
        note += "Open a file with `safetensors.numpy.load_file`; `length` says how many tokens each row has.\n\n"
    return f"""{front}# {_TITLES.get(block.rpartition(".")[2], "Values")}

{found["rows"]:,} rows, {found["tokens"]:,} tokens, {found["files"]:,} files, {found["bytes"] / 1e9:.3f} GB.

{note}| Column | Values | Mean | Deviation | Least | Greatest | Not finite |
|---|---|---|---|---|---|---|
{columns}

`sample` numbers the rows of the corpus, `unit` and `row` say where a row was cut from, `tokens` holds its token ids.

## What the values depend on

{facts}
"""


def _of_column(sums: Sequence[float]) -> dict[str, float]:
    count, total, squares, least, most, not_finite = sums
    finite = max(1.0, count - not_finite)
    mean = total / finite
    return {
        "count": int(count),
        "mean": mean,
        "std": math.sqrt(max(0.0, squares / finite - mean * mean)),
        "min": least,
        "max": most,
        "not_finite": int(not_finite),
    }
