"""Webdataset tars: consecutive members with the same name are a sample, and their extensions its fields.

For rows, only text is decoded: txt, json and jsonl members. No pickle, no images: whole samples are returned as bytes.
A tar is read as a whole: its headers are spread over it, and samples are found only by reading from the beginning.
"""

from __future__ import annotations

import itertools
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.content import read_ends, read_whole, require_content
from tpujob_trainer.data.formats.format import FileScan, RawRows
from tpujob_trainer.data.formats.tar_members import TarError, UnsupportedTarError, read_members
from tpujob_trainer.data.formats.unpacking import LimitedStream, codec_of
from tpujob_trainer.data.formats.values import Unusable, rows_of_values, value_of_json
from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.storage.versions import PATH, DataChangedError
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)

_DECODED = ("txt", "text", "json", "jsonl")
_SHOWN_MEMBERS = 3
UNTAKEN = Unusable("text in a member that is not the column")
"""Stands for each member with text of a sample none of whose members is taken."""


@dataclass(frozen=True)
class Sample:
    """The members with the same name, as they are in the tar."""

    key: str
    """Their name, up to the first dot of the last part of the path."""
    fields: Mapping[str, bytes]
    """Content by extension in lowercase: `jpg`, `json`, `seg.png`."""


class WebDataset:
    """Tar files of samples."""

    name = "webdataset"
    suffixes = FILE_ENDINGS["webdataset"]
    elements = "files"

    def scan(self, root: DataRoot, file: DataFile, column: Column) -> FileScan:
        """One part of one element, the file."""
        digest, _ = read_ends(root, file, is_listed=True)
        return FileScan(digest, np.array([min(file.size, 1)], dtype=np.int64), np.array([file.size], dtype=np.int64))

    def open(self, root: DataRoot, file: DataFile, digest: str, column: Column) -> OpenedTar:
        """The file, checked by its size and both of its ends."""
        require_content(root, file, digest)
        return OpenedTar(root, file, column)


class OpenedTar:
    """One tar."""

    def __init__(self, root: DataRoot, file: DataFile, column: Column) -> None:
        self._root = root
        self._file = file
        self._column = column

    def read(self, part: int, first: int, count: int) -> RawRows:
        """The rows of all samples."""
        samples = self._read(lambda field: field.rsplit(".", 1)[-1] in _DECODED)
        values: list[Any] = []
        for sample in samples:
            found = _values(sample.fields, self._column)
            if found[:1] == [UNTAKEN]:
                self._warn(
                    f"sample {sample.key!r} has {_shown(list(sample.fields))}, and none is the column "
                    f"{self._column.name!r}: what stands before the first dot of a name is the sample"
                )
            values += found
        return rows_of_values(values, self._column)

    def samples(self) -> list[Sample]:
        """All samples, in the order of the tar."""
        return self._read(lambda field: True)

    def _read(self, is_wanted: Callable[[str], bool]) -> list[Sample]:
        data = read_whole(self._root, self._file)
        name = self._root.locate(self._file.path)
        try:
            members = read_members(
                LimitedStream(data, codec_of(data, name), name, self._column),
                lambda member: is_wanted(_split(member)[1]),
            )
            named = list(members)
            if hidden := [member for member, _ in named if _is_hidden(member)]:
                self._warn(
                    f"{len(hidden)} of {len(named)} members are left out, since they are hidden: {_shown(hidden)}"
                )
            return list(_samples(member for member in named if not _is_hidden(member[0])))
        except UnsupportedTarError as error:
            raise ConfigurationError(f"{PATH}: {name!r} cannot be read as a tar: {error}") from error
        except (TarError, pa.ArrowException, zlib.error, OSError, EOFError) as error:
            raise DataChangedError(f"{PATH}: {name!r} cannot be read as a tar: {error}") from error

    def _warn(self, what: str) -> None:
        """Logs a warning about this tar; of many tars with the same, about the first."""
        kind = (self._root.folder, re.sub(r"[0-9]+|'[^']*'|: .*", "", what))
        if kind not in _WARNED:
            _WARNED.add(kind)
            logger.warning("%s: %s", self._file.path, what)


_WARNED: set[tuple[str, str]] = set()
"""What this process has warned of, by the folder of the tars."""


def _samples(members: Iterable[tuple[str, bytes | None]]) -> Iterator[Sample]:
    """The samples, each with the fields that have content.

    Raises:
        UnsupportedTarError: a sample has a field twice.
    """
    for key, group in itertools.groupby(members, key=lambda member: _split(member[0])[0]):
        fields: dict[str, bytes] = {}
        for name, content in group:
            if content is not None and fields.setdefault(_split(name)[1], content) is not content:
                raise UnsupportedTarError(
                    f"sample {key!r} has the field {_split(name)[1]!r} twice, the second time in {name!r}, and one of "
                    "them would be lost (upper and lower case are the same); rename one"
                )
        yield Sample(key, fields)


def _is_hidden(name: str) -> bool:
    """Whether a member is hidden, as `._name` and `.DS_Store`, which macOS adds."""
    return any(part.startswith(".") and part.strip(".") for part in name.split("/"))


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_MEMBERS:,} more" if len(names) > _SHOWN_MEMBERS else ""
    return ", ".join(map(repr, names[:_SHOWN_MEMBERS])) + more


def _split(name: str) -> tuple[str, str]:
    """The key of a sample, and the field: the name up to the first dot of its last part, and the rest."""
    folder, slash, last = name.rpartition("/")
    stem, _, field = last.partition(".")
    return f"{folder}{slash}{stem}", field.lower()


def _values(sample: Mapping[str, bytes], column: Column) -> list[Any]:
    """The rows of a sample: one, or as many as a jsonl member has lines; UNTAKEN for each member if none is taken."""
    members = {name: sample[name.lower()] for name in column.names if name.lower() in sample}
    if column.kind == "row" and "jsonl" not in sample and (members or "json" in sample or not sample):
        record = value_of_json(sample["json"], column) if "json" in sample else {}
        return [{**record, **members} if isinstance(record, dict) else record]
    for field in (column.name.lower(), "txt" if column.kind == "text" and column.name == "text" else ""):
        if field in sample and not field.endswith(("json", "jsonl")):
            return [sample[field]]
    if "json" in sample:
        return [value_of_json(sample["json"], column)]
    if "jsonl" in sample:
        return [value_of_json(line, column) for line in sample["jsonl"].split(b"\n") if line.strip()]
    return [UNTAKEN] * len(sample) or [None]
