"""Files of safetensors: reads them by ranges of bytes, and makes their headers.

A file is the length of a header (8 bytes, little endian), the header (JSON: name to dtype, shape and byte offsets), and
the tensors, row by row; huggingface/safetensors:README.md. Several files have a `model.safetensors.index.json`, whose
`weight_map` maps each tensor to its file.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import ml_dtypes  # noqa: F401 - numpy knows its types by name from then on
import numpy as np

from tpujob_trainer.data.sources.files import DataRoot, explained
from tpujob_trainer.storage.remote import content_of, is_there
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError
from tpujob_trainer.values.json_object import json_object

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

SAFETENSORS_DTYPES: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "int8": "I8", "int32": "I32", "int64": "I64", "uint8": "U8",
}  # fmt: skip
"""Keys are the names in numpy and ml_dtypes (huggingface/safetensors:safetensors/src/tensor.rs)."""
NUMPY_NAMES: Mapping[str, str] = {code: name for name, code in SAFETENSORS_DTYPES.items()}
"""The inverse mapping."""
DTYPES: dict[str, np.dtype[Any]] = {
    code: np.dtype(NUMPY_NAMES[code]) for code in ("F64", "F32", "F16", "BF16", "F8_E4M3", "U8")
}
"""Types in which weights are stored."""
LONGEST_SHOWN = 200
"""Most characters of a name in a message."""
MOST_HEADER_BYTES = 100 << 20
"""Limit of the safetensors library."""


@dataclass(frozen=True)
class Stored:
    """The location, type and shape of a tensor."""

    file: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    """Offset of its first byte in the file."""

    @property
    def num_bytes(self) -> int:
        """Size of the tensor."""
        return self.dtype.itemsize * math.prod(self.shape)


class SafetensorsFolder:
    """All tensors of a model, in one file or several."""

    def __init__(self, root: DataRoot, field: str, *, single: str = SINGLE) -> None:
        """Reads the headers.

        Args:
            root: the folder.
            field: of the configuration that names the folder, for messages.
            single: name of the file, if one file has all tensors.

        Raises:
            NotFoundError: there are no such files, or they cannot be read.
            ConfigurationError: one is damaged, or does not match the index.
        """
        self._root, self._field, self._single = root, field, single
        self.tensors: dict[str, Stored] = {}
        self.unread: dict[str, str] = {}
        """Types of tensors that cannot be read, by name."""
        with explained(root.url, field):
            listed = self._listed()
            for name in sorted({*listed.values()}) if listed is not None else [single]:
                self.tensors |= self._header(name)
        for tensor, name in (listed or {}).items():
            if tensor not in self.unread and (tensor not in self.tensors or self.tensors[tensor].file != name):
                said = f"{shown(tensor)} is in {shown(name)}"
                self._wrong(f"{INDEX} says that {said}, which does not have it; copy both again")

    def read(self, name: str, first: int, stop: int) -> np.ndarray:
        """Rows [first, stop) of a tensor, one read of exactly their bytes; a scalar is one row."""
        return self._read(self.tensors[name], first, stop)

    def _read(self, stored: Stored, first: int, stop: int) -> np.ndarray:
        row = stored.dtype.itemsize * int(np.prod(stored.shape[1:]))
        begin, size = stored.begin + first * row, (stop - first) * row
        with explained(self._root.locate(stored.file), self._field), self._root.open(stored.file) as opened:
            opened.seek(begin)
            data = opened.read(size)
        if len(data) != size:
            self._wrong(f"{stored.file!r} has changed since it was opened, and is shorter; start again")
        return np.frombuffer(data, dtype=stored.dtype).reshape(stop - first, *stored.shape[1:])

    def require(self, name: str, shape: tuple[int, ...], by: str = "config.json") -> Stored:
        """The location of a tensor, which must have this shape; `by` is what requires it, for messages.

        Raises:
            ConfigurationError: there is none, or one of another shape.
        """
        stored = self.tensors.get(name)
        if name in self.unread:
            self._wrong(f"{name!r} is stored as {self.unread[name]}, which is not read; take bfloat16 weights")
        if stored is None:
            raise ConfigurationError(f"{self._field}: there is no tensor {name!r}; is {by} that of these files?")
        if stored.shape != shape:
            raise ConfigurationError(f"{self._field}: {name!r} is {stored.shape}, {by} makes it {shape}")
        return stored

    def prefix(self, embedding: str) -> str:
        """The prefix of the names of a decoder's parts, which is longer in models with images.

        Args:
            embedding: the end of the name of its embedding.

        Raises:
            ConfigurationError: no tensor, or several, have this name.
        """
        found = [name for name in self.tensors if name.endswith(embedding)]
        if len(found) != 1:
            self._wrong(f"{len(found)} tensors are called {embedding}; one is expected")
        return found[0].removesuffix(embedding)

    def named(self, ending: str) -> str:
        """The name of the tensor with this ending; the ending itself if there is none."""
        return next((name for name in self.tensors if name.endswith(ending)), ending)

    def _wrong(self, what: str) -> NoReturn:
        raise ConfigurationError(f"{self._field}: {what}")

    def _listed(self) -> dict[str, str] | None:
        """The file of each tensor, from the index; None: all are in one file."""
        filesystem, locate = self._root.filesystem, self._root.locate
        if is_there(filesystem, locate(self._single)):
            return None
        index = content_of(filesystem, locate(INDEX))
        if index is None:
            raise NotFoundError(
                f"{self._field}: {self._root.url!r} has neither {self._single} nor {INDEX}; name the folder of a model"
            )
        try:
            found: dict[str, str] = dict(json_object(index)["weight_map"])
        except (ValueError, KeyError, TypeError) as error:
            self._wrong(f"{INDEX} is not an index of safetensors: {error!r}; copy it again")
        for name in sorted({*map(str, found.values())}):
            if not _is_below(name):
                self._wrong(f"{INDEX} names {shown(name)}, which is no file of this folder; copy it again")
            if not is_there(filesystem, locate(name)):
                raise NotFoundError(f"{self._field}: {INDEX} names {shown(name)}, which is not there; copy it, too")
        return found

    def _header(self, name: str) -> dict[str, Stored]:
        with self._root.open(name) as opened:
            size = int.from_bytes(opened.read(8), "little")
            if not 2 <= size <= MOST_HEADER_BYTES:
                raise ConfigurationError(f"{self._field}: {name!r} is not a file of safetensors")
            opened.seek(8)
            content = opened.read(size)
        try:
            entries = json_object(content)
            found = {}
            end = 0
            for tensor, entry in entries.items():
                if tensor == "__metadata__":
                    continue
                begin, stop = entry["data_offsets"]
                end = max(end, stop)
                if entry["dtype"] not in DTYPES:
                    self.unread[tensor] = str(entry["dtype"])
                    continue
                found[tensor] = Stored(name, _dtype(entry), tuple(entry["shape"]), 8 + size + begin)
                if found[tensor].num_bytes != stop - begin:
                    self._wrong(f"{name!r}: {tensor!r} has {stop - begin} bytes, its shape and type make it others")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigurationError(f"{self._field}: {name!r} is not a file of safetensors: {error}") from error
        whole, there = 8 + size + end, self._root.filesystem.size(self._root.locate(name))
        if there is not None and there < whole:
            self._wrong(f"{name!r} is cut: it has {there} of {whole} bytes; copy it again")
        return found


def _dtype(entry: Mapping[str, Any]) -> np.dtype[Any]:
    return DTYPES[entry["dtype"]]


def header_of(shapes: Mapping[str, tuple[int, ...]], dtypes: str | Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file that holds these tensors in this order, and where each starts in the file.

    Args:
        shapes: by name.
        dtypes: of all, or by name; keys of `DTYPES`.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin, begins = 0, {}
    for name, shape in shapes.items():
        dtype = dtypes if isinstance(dtypes, str) else dtypes[name]
        end = begin + int(np.prod(shape)) * DTYPES[dtype].itemsize
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begins[name], begin = begin, end
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    header = len(content).to_bytes(8, "little") + content
    return header, {name: len(header) + at for name, at in begins.items()}


def _is_below(name: str) -> bool:
    """Whether a name is that of a file in the folder, or in one below it."""
    parts = name.split("/")
    return "\0" not in name and all(part not in ("", ".", "..") for part in parts)


def shown(name: object) -> str:
    """A name from a file that may be damaged, for a message."""
    return repr(name) if len(str(name)) <= LONGEST_SHOWN else f"{str(name)[:LONGEST_SHOWN]!r}…"
