"""What the engine of independent workers requires of a task: read a unit, compute it, pack it into files."""

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
