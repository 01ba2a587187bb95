"""Files of safetensors, read by ranges of bytes and written tensor by tensor.

A file is the length of a header (8 bytes, little endian), the header (JSON: name to dtype, shape and byte offsets), and
the tensors, row by row; huggingface/safetensors:README.md. Several files have a `model.safetensors.index.json`, whose
`weight_map` says which tensor is in which file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from tpujob_trainer.data.sources.files import DataRoot, explained
from tpujob_trainer.errors import ConfigurationError, NotFoundError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
MOST_HEADER_BYTES = 100 << 20
"""As the safetensors library allows."""


@dataclass(frozen=True)
class Stored:
    """Where a tensor is."""

    file: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    """Of its first byte in the file."""


class SafetensorsFolder:
    """All tensors of a model, in one file or several."""

    def __init__(self, root: DataRoot, field: str) -> None:
        """Read the headers.

        Args:
            root: the folder.
            field: where it was written, for messages.

        Raises:
            NotFoundError: there are no such files, or they may not be read.
            ConfigurationError: one is not what it should be.
        """
        self._root, self._field = root, field
        self.tensors: dict[str, Stored] = {}
        with explained(root.url, field):
            for name in self._files():
                self.tensors |= self._header(name)

    def read(self, name: str, first: int, stop: int) -> np.ndarray:
        """Rows [first, stop) of a tensor, one read of exactly their bytes; a scalar is one row."""
        stored = self.tensors[name]
        row = stored.dtype.itemsize * int(np.prod(stored.shape[1:]))
        begin, size = stored.begin + first * row, (stop - first) * row
        with explained(self._root.locate(stored.file), self._field), self._root.open(stored.file) as opened:
            opened.seek(begin)
            data = opened.read(size)
        if len(data) != size:
            raise ConfigurationError(f"{self._field}: {stored.file!r} ends within {name!r}; copy it again")
        return np.frombuffer(data, dtype=stored.dtype).reshape(stop - first, *stored.shape[1:])

    def require(self, name: str, shape: tuple[int, ...]) -> Stored:
        """Where a tensor of this shape is.

        Raises:
            ConfigurationError: there is none, or one of another shape.
        """
        stored = self.tensors.get(name)
        if stored is None:
            raise ConfigurationError(f"{self._field}: there is no tensor {name!r}; is config.json that of these files?")
        if stored.shape != shape:
            raise ConfigurationError(f"{self._field}: {name!r} is {stored.shape}, config.json makes it {shape}")
        return stored

    def _files(self) -> list[str]:
        filesystem, locate = self._root.filesystem, self._root.locate
        if filesystem.exists(locate(INDEX)):
            return sorted(set(json.loads(filesystem.cat_file(locate(INDEX)))["weight_map"].values()))
        if filesystem.exists(locate(SINGLE)):
            return [SINGLE]
        raise NotFoundError(
            f"{self._field}: {self._root.url!r} has neither {SINGLE} nor {INDEX}; name the folder of a model"
        )

    def _header(self, name: str) -> dict[str, Stored]:
        with self._root.open(name) as opened:
            size = int.from_bytes(opened.read(8), "little")
            if not 2 <= size <= MOST_HEADER_BYTES:
                raise ConfigurationError(f"{self._field}: {name!r} is not a file of safetensors")
            opened.seek(8)
            content = opened.read(size)
        try:
            entries: Mapping[str, Any] = json.loads(content)
            return {
                tensor: Stored(name, _dtype(entry), tuple(entry["shape"]), 8 + size + entry["data_offsets"][0])
                for tensor, entry in entries.items()
                if tensor != "__metadata__" and entry["dtype"] in DTYPES
            }
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"{self._field}: {name!r} is not a file of safetensors: {error}") from error


def _dtype(entry: Mapping[str, Any]) -> np.dtype[Any]:
    return DTYPES[entry["dtype"]]


def header_of(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> tuple[bytes, dict[str, int]]:
    """The beginning of a file that holds these tensors in this order, and where each begins in the file.

    Args:
        shapes: by name.
        dtype: of all, a key of `DTYPES`.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin, begins = 0, {}
    for name, shape in shapes.items():
        end = begin + int(np.prod(shape)) * DTYPES[dtype].itemsize
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begins[name], begin = begin, end
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    header = len(content).to_bytes(8, "little") + content
    return header, {name: len(header) + at for name, at in begins.items()}
