"""What the `data` block of a trainer configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.config_parsing import Range

MEBIBYTE = 1 << 20

FIELD = "spec.trainer.data"


@dataclass(frozen=True)
class Column:
    """The column of a source that is trained on."""

    kind: Literal["text", "messages", "tokens"]
    name: str
    field: str
    """Where it was written, for messages."""


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Where rows come from, and which of their columns is trained on."""

    path: str
    """Parquet: a file, a folder (all its levels) or a pattern; local or a URL, as in gs://bucket/text/*.parquet."""
    text_column: str = "text"
    """The column that holds the text; one row is one document."""

    def column(self, field: str = FIELD) -> Column:
        """The column wanted; `field` is where this source stands in the configuration."""
        return Column("text", self.text_column, f"{field}.textColumn")


@dataclass(frozen=True, kw_only=True)
class DataConfig(SourceConfig):
    """Which text is trained on, and how it becomes tokens."""

    tokenizer: str = "bytes"
    """bytes (every byte is a token), or the path or URL of a Hugging Face tokenizer.json."""
    lanes: Annotated[int, Range(1, 1048576)] | None = None
    """Independent streams that fill the global batch; a divisor of batchSize, fixed for the whole run. Default: one for
    each row, or as many as bufferBytes allows."""
    unit_bytes: Annotated[int, Range(1, 1 << 31)] = 8 * MEBIBYTE
    """Decoded text that is read and shuffled together. A restart costs each lane at most one of these to read again."""
    buffer_bytes: Annotated[int, Range(1, 1 << 40)] = 4096 * MEBIBYTE
    """Host memory for text read ahead if one process held every lane: two units for each."""

    def sources(self) -> tuple[tuple[str, SourceConfig], ...]:
        """Each source with where it stands in the configuration."""
        return ((FIELD, self),)
