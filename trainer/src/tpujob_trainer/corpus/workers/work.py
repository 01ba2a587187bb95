"""What the engine of independent workers asks of a task: read a unit, compute it, pack it into files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class PackedFile:
    """A file in the scratch folder."""

    path: Path
    rows: int


@dataclass(frozen=True)
class Packed:
    """A unit in files, and what its result says about it."""

    files: list[PackedFile]
    tokens: int
    skipped: dict[str, int]
    """Rows of the corpus that gave nothing, by cause."""
    checksum: str
    statistics: dict[str, Any] = field(default_factory=dict)
    flops: int | None = None
    """Operations that its tokens need; None where that is not known."""


class Work[Read, Computed](Protocol):
    """What is done with a unit. A repetition gives the same result."""

    def read(self, unit: int) -> Read:
        """The unit's input, on a thread of its own."""

    def compute(self, read: Read) -> Computed:
        """What the devices make of it, on the thread that called `Engine.run`; it may still be on its way."""

    def size(self, computed: Computed) -> int:
        """About the bytes of its files; waits for what was on its way. On a thread of its own, before `pack`."""

    def pack(self, computed: Computed, folder: Path, name: str) -> Packed:
        """Its files, written into a folder under names that begin with `name`; on a thread of its own."""
