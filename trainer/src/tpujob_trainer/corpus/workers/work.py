"""The fields that every task of independent workers has, and what their engine requires of one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from tpujob_trainer.values.from_mapping import Range

MEBIBYTE = 1 << 20

FileFormat = Literal["parquet", "arrow", "safetensors"]
Compression = Literal["zstd", "lz4", "none"]


@dataclass(frozen=True, kw_only=True)
class UnitsConfig:
    """How workers share a corpus, and how their files are written."""

    format: FileFormat = "parquet"
    """parquet; arrow: Arrow IPC files, which are memory-mapped as they are when compression is none; or safetensors,
    which is never compressed, and which `datasets` does not open."""
    compression: Compression = "zstd"
    """How the files are compressed."""
    shard_bytes: Annotated[int, Range(1 << 12, 1 << 34)] = 512 * MEBIBYTE
    """Most bytes of values in one file, before compression; a single row may be larger."""
    rows: Annotated[int, Range(1, 1e12)] | None = None
    """Take the first so many rows of the corpus, in the order of its files. Default: all of them."""
    unit_rows: Annotated[int, Range(1, 1e9)] | None = None
    """Rows that a worker claims at a time: what is lost when it dies. Default: what fills one file, and a batch at
    least if rows are short; or less, so that every worker gets several units."""
    buckets: Annotated[int, Range(1, 8)] = 4
    """Lengths of sequences that the model is compiled for: sequenceLength, and its halves down to this number of them.
    Rows are packed into them, several to one; generate has one row in each."""
    lease_seconds: Annotated[int, Range(2, 3600)] = 45
    """A unit whose worker has given no sign of life for so long is taken over by another one."""
    accept_other_image: bool = False
    """Go on with files that were made with another version of JAX or libtpu, or by a trainer that computes values in
    another way. Their values may differ in the last digits."""
    scratch: str | None = None
    """Folder for files on their way to the bucket. Default: the system's folder for temporary files."""
    scratch_bytes: Annotated[int, Range(1 << 16, 1 << 40)] = 2048 * MEBIBYTE
    """Most bytes there at a time; the files are removed when they are uploaded."""


@dataclass(frozen=True)
class PackedFile:
    """A file in the scratch folder."""

    path: Path
    rows: int


@dataclass(frozen=True)
class Packed:
    """The files of a unit, and the facts for its result."""

    files: list[PackedFile]
    tokens: int
    skipped: dict[str, int]
    """Rows of the corpus that were left out, by cause."""
    checksum: str
    statistics: dict[str, Any] = field(default_factory=dict)
    flops: int | None = None
    """Operations that its tokens need; None: unknown."""


class Work[Read, Computed](Protocol):
    """The work on a unit. A repetition gives the same result."""

    def read(self, unit: int) -> Read:
        """The unit's input, on a thread of its own."""

    def compute(self, read: Read) -> Computed:
        """The computed unit, on the thread that called `Engine.run`; the devices may still be computing it."""

    def size(self, computed: Computed) -> int:
        """The approximate bytes of its files; waits for the devices. On a thread of its own, before `pack`."""

    def pack(self, computed: Computed, folder: Path, name: str) -> Packed:
        """Writes its files into a folder under names that begin with `name`; on a thread of its own."""
