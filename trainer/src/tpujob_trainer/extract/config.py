"""What the `extract` block of a trainer configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.config_parsing import Range
from tpujob_trainer.extract.layers import Kind

FIELD = "spec.trainer.extract"
MEBIBYTE = 1 << 20

Positions = Literal["all", "last", "mean"]
ValueType = Literal["float16", "bfloat16", "float32", "int8"]
FileFormat = Literal["parquet", "arrow"]
Compression = Literal["zstd", "lz4", "none"]


@dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """Activations of a corpus, written as files into the checkpoint directory by independent workers."""

    layers: tuple[int | str, ...]
    """Decoder layers by number from 0, by name as in model.layers.15, or as a range as in 15-18 (both included); or
    embedding, last, norm (what leaves the final norm)."""
    keep: tuple[Kind, ...] = ("residual",)
    """What is kept of each layer: residual (the stream that leaves it), attention, mlp (what these two add to it)."""
    positions: Positions = "all"
    """Of each row: the values at all tokens, at the last one, or their mean over the tokens."""
    dtype: ValueType = "float16"
    """Type of the values in the files. int8 comes with a float32 scale for each vector, in a column of its own;
    bfloat16 is stored as the 16 bits of each value (uint16), since Arrow has no such type."""
    format: FileFormat = "parquet"
    """parquet, or arrow: Arrow IPC files, which are memory-mapped as they are when compression is none."""
    compression: Compression = "zstd"
    """How the files are compressed."""
    shard_bytes: Annotated[int, Range(1 << 12, 1 << 34)] = 512 * MEBIBYTE
    """Most bytes of values in one file, before compression; a single row may be larger."""
    rows: Annotated[int, Range(1, 1e12)] | None = None
    """Take the first so many rows of the corpus, in the order of its files. Default: all of them."""
    unit_rows: Annotated[int, Range(1, 1e9)] | None = None
    """Rows that a worker claims at a time: what is lost when it dies. Default: what fills one file, or less, so that
    every worker gets several units."""
    buckets: Annotated[int, Range(1, 8)] = 4
    """Row lengths that the model is compiled for: sequenceLength, and its halves down to this number of them. Short
    rows are computed together, with less padding."""
    lease_seconds: Annotated[int, Range(2, 3600)] = 45
    """A unit whose worker has given no sign of life for so long is taken over by another one."""
    scratch: str | None = None
    """Folder for files on their way to the bucket. Default: the system's folder for temporary files."""
    scratch_bytes: Annotated[int, Range(1 << 16, 1 << 40)] = 2048 * MEBIBYTE
    """Most bytes there at a time; the files are removed when they are uploaded."""
