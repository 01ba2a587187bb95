"""What tells one task over a corpus from another: its block, what it computes of a batch, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.config.schema import BLOCK
from tpujob_trainer.corpus.extract.batched import Arrange, Flops
from tpujob_trainer.corpus.extract.program import Program
from tpujob_trainer.corpus.workers.config import UnitsConfig
from tpujob_trainer.model.decoder import Model, Weights


@dataclass(frozen=True, kw_only=True)
class BatchTask:
    """A task of independent workers."""

    name: str
    """As in `trainer.task`, and of its block."""
    units: UnitsConfig
    """The block."""
    described: Mapping[str, Any]
    """The fields of the block that decide the values, by key."""
    row_bytes: int
    """Of what is written of a row, however many tokens it has."""
    token_bytes: int = 0
    """Of what is written of each token beside it."""
    make: Callable[[Model, Weights], Program]
    flops: Flops | None = None
    """Of rows; None where it is not known before they are computed."""
    arrange: Arrange = dict
    is_packed: bool = True
    """Whether several rows are computed in one sequence."""
    is_cut: bool = True
    """Whether rows that are too long are cut off, and not left out."""
    is_prompt: bool = False
    """Whether the rows are prompts: a conversation is written up to where its last answer begins."""

    @property
    def field(self) -> str:
        """The block as the user wrote it."""
        return f"{BLOCK}.{self.name}"
