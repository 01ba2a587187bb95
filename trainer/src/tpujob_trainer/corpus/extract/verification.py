"""Checks the files of an extraction against their results. Pure, except for the function that reads files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult
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
    if missing := sorted(set(range(units or 0)) - {result.unit for result in results}):
        shown = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        yield Problem(f"{len(missing)} of {units} units are not done: {shown}", None)
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
    if unit_rows is not None and accounted != unit_rows[result.unit]:
        yield (
            f"unit {result.unit}: {result.rows} rows and {accounted - result.rows} that were left out, but the corpus "
            f"has {unit_rows[result.unit]} there"
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
