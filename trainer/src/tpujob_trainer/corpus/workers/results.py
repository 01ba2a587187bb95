"""The result of a finished unit: `done/<unit>.json`, created if absent and never changed.

If two workers finish the same unit, the first one's object counts. It names that worker's files, and only these are
part of the result: all others are leftovers of workers that were killed or too late.
"""

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tpujob_contract.typed import mistyped
from tpujob_trainer.corpus.workers.claims import unit_name
from tpujob_trainer.storage import Bucket
from tpujob_trainer.values.json_object import damaged, kept_object

FOLDER = "done/"
OUTPUTS = "out/"
_NAME = re.compile(rf"{FOLDER}([0-9]{{8,}})\.json")
REMEDY = "delete it, and the job makes the unit again"


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """One file of a unit."""

    name: str
    """Below the output directory."""
    rows: int
    bytes: int
    crc32c: str
    """Eight hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class UnitResult:
    """The result of a unit."""

    unit: int
    rows: int
    """In its files."""
    skipped: dict[str, int]
    """Rows of the corpus that were left out, by cause."""
    tokens: int
    files: tuple[OutputFile, ...]
    checksum: str
    """Of the content of all its rows, whatever the files' compression: 32 hexadecimal digits."""
    statistics: dict[str, list[float]]
    """Sums that can be added up over units."""
    worker: str
    token: str
    seconds: float
    """From the claim to this result, by the worker's clock."""
    taken_over_from: str | None = None
    """The worker whose lease of the unit had lapsed before."""
    chips: int | None = None
    """Of the worker; CPU devices if it has no TPU. None in files of earlier releases, like `chip_kind`."""
    chip_kind: str | None = None
    """As JAX calls it."""
    flops: int | None = None
    """Operations that its tokens need; None: unknown, or a file of an earlier release."""

    @property
    def not_finite(self) -> int:
        """Values of all its columns that are not finite."""
        return sum(int(sums[-1]) for sums in self.statistics.values())

    @property
    def num_bytes(self) -> int:
        """Of all its files."""
        return sum(file.bytes for file in self.files)

    def to_json(self) -> bytes:
        """The content of the object."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()


def parse(content: bytes, name: str) -> UnitResult:
    """The result that an object holds; keys of a later version are ignored.

    Raises:
        ConfigurationError: it holds something else; `name` of the object is in the message.
    """
    where = f"spec.checkpointDir: {name}"
    values = kept_object(content, where, REMEDY)
    files = values.get("files")
    if not isinstance(files, list):
        raise damaged(where, "its files are not said", REMEDY)
    try:
        made = UnitResult(**{**_known(UnitResult, values), "files": tuple(_output_file(file) for file in files)})
    except TypeError as error:
        raise damaged(where, error, REMEDY) from error
    if wrong := _wrong(made):
        raise damaged(where, wrong, REMEDY)
    return made


def _output_file(values: Any) -> OutputFile:
    if not isinstance(values, dict):
        raise TypeError(f"a file is {str(values)[:20]}")
    return OutputFile(**_known(OutputFile, values))


def _known(kind: type[OutputFile | UnitResult], values: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {key: value for key, value in values.items() if key in names}


def _wrong(result: UnitResult) -> str:
    """The first value that is not valid for its field, as text; empty: there is none."""
    files = result.files
    wrong = [each for part in (result, *files) for each in mistyped(part).values()]
    if not wrong:
        counts = [result.unit, result.rows, result.tokens, *(n for file in files for n in (file.rows, file.bytes))]
        wrong += [count for count in (*counts, *result.skipped.values()) if not 0 <= count < 1 << 63]
        # As `STATISTICS`; the counts are finite, the sums may not be.
        wrong += [s for s in result.statistics.values() if len(s) != len(STATISTICS) or not math.isfinite(s[0] + s[-1])]
        wrong += [file.name for file in files if not _is_output(file.name)]
    return f"{str(wrong[0])[:40]!r}" if wrong else ""


def _is_output(name: str) -> bool:
    return name.startswith(OUTPUTS) and ".." not in name.split("/")


def is_done(objects: Bucket, unit: int) -> bool:
    """Whether any worker has finished the unit."""
    return objects.look(name_of(unit)) is not None


def mark_done(objects: Bucket, result: UnitResult) -> bool:
    """Writes the result if the unit has none yet; returns whether it did, so that this one counts."""
    return objects.create(name_of(result.unit), result.to_json()) is not None


def withdraw(objects: Bucket, name: str, content: bytes) -> bool:
    """Removes an object if it has this content, so that workers make the unit again; returns whether it did.

    A unit that another worker has made meanwhile has another content, and keeps its result.
    """
    found = objects.look(name)
    return found is not None and found.data == content and objects.delete(name, version=found.version)


def name_of(unit: int) -> str:
    """The name of the object with a unit's result."""
    return f"{FOLDER}{unit_name(unit)}.json"


def units_in(names: Iterable[str], units: int) -> list[int]:
    """Which of so many units a listing of results has; other files, of people or a file system, are no results."""
    found = (int(match[1]) for match in map(_NAME.fullmatch, names) if match)
    return [unit for unit in found if unit < units]


STATISTICS = ("count", "sum", "sum_of_squares", "minimum", "maximum", "not_finite")


def add_statistics(before: list[float] | None, more: list[float]) -> list[float]:
    """Two lists of `STATISTICS` together."""
    assert len(more) == len(STATISTICS)
    if before is None:
        return more
    least, most = min(before[3], more[3]), max(before[4], more[4])
    sums = [a + b for a, b in zip(before, more, strict=True)]
    return [*sums[:3], least, most, sums[5]]
