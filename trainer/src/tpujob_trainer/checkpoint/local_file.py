"""A file with the shards of a step that one process holds: a header, then the bytes of each shard, with checksums.

The file gets its name when all its content is on the disk, so that a file with that name is complete; the checksums
detect damage by the disk after that.
"""

import dataclasses
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

UNFINISHED = ".unfinished"
_MAGIC = b"tpujob-1"
_START = struct.Struct("<8sQI")
"""The start of the file: magic bytes, the length of the header and its checksum."""

Index = tuple[tuple[int, int], ...]
"""The position of a shard in its leaf: begin and end along each dimension."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a file."""

    run: str
    """The checkpoint directory, which identifies the run."""
    step: int
    save: str
    """Name of the save: the same in all files of one save, and in no others."""
    committed: int | None
    """The newest step in the checkpoint directory at that time, as far as the process knew."""
    process: tuple[int, int]
    """Its id, and the number of processes."""
    algorithm: str
    fingerprints: Mapping[str, str]
    """Of the global arrays, by leaf."""
    metadata: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard and the position of its bytes; `offset` counts from the end of the header."""

    leaf: str
    shape: tuple[int, ...]
    """Of the leaf."""
    dtype: str
    index: Index
    offset: int
    size: int
    checksum: int


@dataclasses.dataclass(frozen=True)
class LocalFile:
    """A file whose header was read."""

    path: Path
    header: Header
    shards: Mapping[tuple[str, Index], Shard]
    start: int

    def read(self, leaf: str, index: Index) -> np.ndarray:
        """The values of a shard.

        Raises:
            OSError: the file cannot be read.
            ValueError: it does not hold what was written.
        """
        shard = self.shards[leaf, index]
        if not 0 <= shard.size <= self.path.stat().st_size:
            raise ValueError(f"{leaf} in {self.path} is cut off, or not as it was written")
        data = np.fromfile(self.path, np.uint8, shard.size, offset=self.start + shard.offset)
        if data.size != shard.size or zlib.crc32(data) != shard.checksum:
            raise ValueError(f"{leaf} in {self.path} is not as it was written")
        return data.view(jnp.dtype(shard.dtype)).reshape([end - begin for begin, end in index])


def write(path: Path, header: Header, shards: Sequence[tuple[str, tuple[int, ...], Index, np.ndarray]]) -> None:
    """Writes a file, which gets its name only when all of it is on the disk.

    Args:
        path: Of the file; its folder exists.
        header: Of the file.
        shards: Leaf, shape of the leaf, index, and values.

    Raises:
        OSError: the disk is full or missing. What was written is removed.
    """
    described, offset = [], 0
    for leaf, shape, index, values in shards:
        checksum = zlib.crc32(_bytes(values))
        described.append(Shard(leaf, shape, str(values.dtype), index, offset, values.nbytes, checksum))
        offset += values.nbytes
    text = json.dumps({**dataclasses.asdict(header), "shards": [dataclasses.astuple(s) for s in described]}).encode()
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            file.write(_START.pack(_MAGIC, len(text), zlib.crc32(text)))
            file.write(text)
            for _, _, _, values in shards:
                file.write(_bytes(values))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def open_file(path: Path) -> LocalFile:
    """A file, with its header read and verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it does not hold what was written.
    """
    with path.open("rb") as file:
        start = file.read(_START.size)
        if len(start) < _START.size:
            raise ValueError(f"{path} is cut off")
        magic, length, checksum = _START.unpack(start)
        if length > path.stat().st_size:
            raise ValueError(f"{path} is cut off, or not as it was written")
        text = file.read(length) if magic == _MAGIC else b""
    if zlib.crc32(text) != checksum or not text:
        raise ValueError(f"{path} is not as it was written")
    values = json.loads(text)
    shards = [_shard(each) for each in values.pop("shards")]
    values["process"] = tuple(values["process"])
    return LocalFile(path, Header(**values), {(s.leaf, s.index): s for s in shards}, _START.size + length)


def _shard(values: list[Any]) -> Shard:
    leaf, shape, dtype, index, offset, size, checksum = values
    return Shard(leaf, tuple(shape), dtype, tuple((begin, end) for begin, end in index), offset, size, checksum)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
