"""The rows of the global batch that this process holds, batch after batch, read ahead by a thread.

- Which rows: told by the caller, who reads it from the sharding; never worked out from a process number.
- The state belongs to the batch it comes with, not to what has been read ahead.
- What goes wrong in a thread is raised by `next()`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from tpujob_trainer.data.lane import Lane, LanePosition, Windows
from tpujob_trainer.data.manifest import Manifest
from tpujob_trainer.data.permutation import row_order
from tpujob_trainer.data.plan import LanePlan
from tpujob_trainer.data.read_ahead import Ahead, ReadPool
from tpujob_trainer.data.reader import UnitReader
from tpujob_trainer.data.rows import RowCounts, UnitRows, usable_rows
from tpujob_trainer.data.state import describe_data, identity_of, pack_position, unpack_state
from tpujob_trainer.data.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_READ_THREADS = 8


@dataclass(frozen=True)
class LocalBatch:
    """Rows of a global batch; S is the sequence length."""

    inputs: np.ndarray
    """int32 [rows, S]"""
    targets: np.ndarray
    """int32 [rows, S]: the token after each input."""
    segment_ids: np.ndarray
    """int32 [rows, S], from 1: positions with another id belong to another document."""
    positions: np.ndarray
    """int32 [rows, S], from 0 at the beginning of each segment."""
    loss_mask: np.ndarray
    """bool [rows, S]: False where the target begins another document."""
    rows: np.ndarray
    """int32 [rows]: which rows of the global batch these are, ascending."""
    state: np.ndarray
    """int32 [rows, columns]: the position after this batch; all processes' rows together restore any process."""


class BatchLoader(Iterator[LocalBatch]):
    """Endless batches for one process; close it, or use it in a `with`, to end its threads."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: Tokenizer,
        plan: LanePlan,
        sequence_length: int,
        *,
        rows: Sequence[int] | np.ndarray,
        state: np.ndarray | None = None,
        prefetch: int = 2,
        reader: UnitReader | None = None,
    ) -> None:
        """Start to read.

        Args:
            manifest: the data.
            tokenizer: of all processes alike.
            plan: of all processes alike.
            sequence_length: inputs of a row.
            rows: rows of the global batch this process holds, ascending.
            state: of the last batch consumed, int32 [global rows, columns], whole; None to begin.
            prefetch: batches made ahead of `next()`; 0 makes them in `next()` itself.
            reader: reads the units; made from the manifest if None.

        Raises:
            ConfigurationError: the state is not one of this data, tokenizer and plan.
        """
        self.rows = np.asarray(rows, dtype=np.int32)
        if not len(self.rows) or (np.diff(self.rows, prepend=-1, append=plan.batch_size) <= 0).any():
            raise ValueError(f"rows must ascend within 0…{plan.batch_size - 1}: {self.rows.tolist()}")
        self.counts = RowCounts()
        self.wait_seconds = 0.0
        self._plan = plan
        self._identity = identity_of(describe_data(manifest, tokenizer, plan, sequence_length))
        positions = [LanePosition()] * plan.lanes if state is None else unpack_state(state, plan, self._identity)
        self._reader = reader or UnitReader(manifest)
        self._pool = ReadPool(_READ_THREADS) if prefetch else None
        self._lanes = {
            number: Lane(
                plan,
                number,
                tokenizer=tokenizer,
                sequence_length=sequence_length,
                start_read=self._start_read,
                position=positions[number],
                counts=self.counts,
            )
            for number in plan.lanes_of(self.rows)
        }
        logger.info(
            "Reading data: root=%s lanes=%d/%d rows=%d/%d epoch=%d batches=%d",
            manifest.sources[0].root, len(self._lanes), plan.lanes, len(self.rows), plan.batch_size,
            min(position.epoch for position in positions), positions[0].batches,
        )  # fmt: skip
        self.state = self._state_of_rows()
        self._ahead = Ahead(self._make, prefetch) if prefetch else None

    def __next__(self) -> LocalBatch:
        """The next batch; waits for it where it is not made yet."""
        began = time.monotonic()
        batch = self._ahead.take() if self._ahead else self._make()
        self.wait_seconds += time.monotonic() - began
        self.state = batch.state
        return batch

    def close(self) -> None:
        """End the threads; batches made ahead are dropped."""
        if self._ahead:
            self._ahead.close()
        if self._pool:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> LocalBatch:
        windows = {number: lane.next_windows() for number, lane in self._lanes.items()}
        lane, row = np.divmod(self.rows, self._plan.rows_per_lane)
        columns = {
            field.name: np.stack(
                [getattr(windows[at], field.name)[of] for at, of in zip(lane.tolist(), row.tolist(), strict=True)]
            )
            for field in fields(Windows)
        }
        return LocalBatch(**columns, rows=self.rows, state=self._state_of_rows())

    def _state_of_rows(self) -> np.ndarray:
        packed = {number: pack_position(self._identity, lane.position) for number, lane in self._lanes.items()}
        return np.stack([packed[number] for number in (self.rows // self._plan.rows_per_lane).tolist()])

    def _start_read(self, unit: int, epoch: int, first: int) -> Callable[[], UnitRows]:
        def read() -> UnitRows:
            raw = self._reader.read(unit)
            return usable_rows(raw, row_order(len(raw.column), "rows", self._plan.seed, epoch, unit), first)

        return self._pool.submit(read) if self._pool else read
