"""The safetensors files of a model, one or several, and the index of several."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpujob_trainer.model.weights.safetensors import DTYPES, INDEX, SINGLE, header_of

FILE_BYTES = 50_000_000_000
"""Of one file, as transformers has it."""
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it will be stored."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """A key of `DTYPES`."""

    @property
    def num_bytes(self) -> int:
        """Of it, stored."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def remove_former(filesystem: Any, folder: str, names: set[str], *, description: str) -> None:
    """Remove what would make of a former export's files and these a model that is neither.

    Args:
        filesystem: of the folder.
        folder: on it.
        names: of the files that are written over.
        description: the file without which a folder is not whole; it goes first.
    """
    former = {str(path).rpartition("/")[2] for path in filesystem.ls(folder, detail=False)}
    weights = {name for name in former if name == SINGLE or _SHARD.fullmatch(name)} - names
    for name in [name for name in (description, INDEX) if name in former] + sorted(weights):
        filesystem.rm(f"{folder}/{name}")


def in_files[Kept: StoredTensor](pieces: Sequence[Kept], most: int) -> dict[str, list[Kept]]:
    """Tensors by the name of their file, each of at most so many bytes, but for a tensor that is larger."""
    groups: list[list[Kept]] = [[]]
    size = 0
    for piece in pieces:
        more = piece.num_bytes
        if groups[-1] and size + more > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += more
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    return {f"model-{at + 1:05}-of-{len(groups):05}.safetensors": group for at, group in enumerate(groups)}


def index_of(files: Mapping[str, Sequence[StoredTensor]]) -> bytes:
    """The content of the index of several files."""
    pieces = [(file, piece) for file, group in files.items() for piece in group]
    size = sum(piece.num_bytes for _, piece in pieces)
    content = {"metadata": {"total_size": size}, "weight_map": {piece.name: file for file, piece in pieces}}
    return (json.dumps(content, indent=2) + "\n").encode()


def write_file(filesystem: Any, target: str, pieces: Sequence[StoredTensor], content: Iterator[np.ndarray]) -> None:
    """Write tensors into a file, which appears whole or not at all."""
    types = {piece.name: piece.dtype for piece in pieces}
    header, _ = header_of({piece.name: piece.shape for piece in pieces}, types)
    is_local = "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol)
    written = f"{target}.partial" if is_local else target  # an object appears whole
    try:
        with contextlib.closing(filesystem.open(written, "wb")) as file:
            file.write(header)
            for array in content:
                file.write(np.ascontiguousarray(array).tobytes())
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm(written)
        raise
    if is_local:
        filesystem.mv(written, target)
