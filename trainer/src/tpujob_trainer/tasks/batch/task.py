"""The definition of a task on a corpus: its block, its computation for a batch, and its columns."""

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
    """The value of `trainer.task`, which is also the name of the block."""
    units: UnitsConfig
    """The block."""
    described: Mapping[str, Any]
    """The fields of the block that determine the values, by key."""
    row_bytes: int
    """Bytes written for a row, whatever its length."""
    token_bytes: int = 0
    """Bytes written in addition for each of its tokens."""
    make: Callable[[Model, Weights], Program]
    flops: Flops | None = None
    """FLOPs of rows; None: unknown before they are computed."""
    arrange: Arrange = dict
    is_packed: bool = True
    """Whether several rows are computed in one sequence."""
    is_cut: bool = True
    """Whether rows that are too long are cut off; otherwise they are left out."""
    is_prompt: bool = False
    """Whether the rows are prompts: a conversation ends where its last answer begins."""

    @property
    def field(self) -> str:
        """The path of the block in the job, for messages."""
        return f"{BLOCK}.{self.name}"
