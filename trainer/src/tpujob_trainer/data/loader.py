"""The rows of the global batch that this process holds, batch after batch, read ahead by a thread.

- Which rows: told by the caller, who reads it from the sharding; never worked out from a process number.
- The state belongs to the batch it comes with, not to what has been read ahead.
- What goes wrong in a thread is raised by `next()`.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tpujob_trainer.data.documents import documents_of, kind_of
from tpujob_trainer.data.lane import Lane, LanePosition
from tpujob_trainer.data.manifest import Manifest
from tpujob_trainer.data.packing import pack
from tpujob_trainer.data.patient_reader import PatientReader
from tpujob_trainer.data.permutation import row_order
from tpujob_trainer.data.plan import LanePlan
from tpujob_trainer.data.read_ahead import Ahead, ReadPool
from tpujob_trainer.data.read_meter import METER
from tpujob_trainer.data.reader import UnitReader
from tpujob_trainer.data.rows import SkippedRows, UnitRows, usable_rows
from tpujob_trainer.data.state import describe_data, identity_of, pack_positions, unpack_state
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
    batches_left: int
    """How many batches after this one have anything for the rows of this process, 2 meaning two or more. The run's data
    ends after the batch for which the greatest of all processes is 0."""


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
        self.counts = SkippedRows(manifest.name_row, max_fraction=plan.max_skipped_fraction)
        self.wait_seconds = 0.0
        self._plan = plan
        described = describe_data(manifest, tokenizer, plan, sequence_length)
        self._identity = identity_of(described)
        begun = {} if state is None else unpack_state(state, plan, self._identity)
        self._reader = PatientReader(reader or UnitReader(manifest), plan.retry_seconds)
        self._pool = ReadPool(_READ_THREADS) if prefetch else None
        self._kinds = [kind_of(source.column, tokenizer) for source in manifest.sources]
        self._lanes = {
            (number, source): Lane(
                plan,
                number,
                documents=documents_of(manifest.sources[source].column, tokenizer),
                sequence_length=sequence_length,
                start_read=functools.partial(self._start_read, source),
                skipped=self.counts,
                source=source,
                position=begun.get((number, source), LanePosition()),
            )
            for number in plan.lanes_of(self.rows)
            for source in range(plan.num_sources)
        }
        self._sequence_length = sequence_length
        numbers = plan.lanes_of(self.rows)
        self._lane_of_rows = np.searchsorted(numbers, self.rows // plan.rows_per_lane)
        self._rows_of_lanes = {number: np.array(plan.rows_of(number)) for number, _ in self._lanes}
        self._places = np.full(plan.batch_size, -1, dtype=np.int64)
        self._places[self.rows] = np.arange(len(self.rows))
        self._batches = next(iter(self._lanes.values())).position.batches
        logger.info(
            "Reading data: root=%s lanes=%d/%d rows=%d/%d epochs=%s batches=%d",
            ",".join(source.root for source in manifest.sources), len(self._lanes), plan.lanes * plan.num_sources,
            len(self.rows), plan.batch_size, self.epochs, self._batches,
        )  # fmt: skip
        self.state = self._state_of_rows()
        self._ahead = Ahead(self._make, prefetch) if prefetch else None

    def __next__(self) -> LocalBatch:
        """The next batch; waits for it where it is not made yet."""
        began = time.monotonic()
        with METER.waiting():
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

    @property
    def epochs(self) -> list[int]:
        """Passes that are over, of each source: of the lane of this process that is least far."""
        return [
            min(lane.position.epoch for (_, source), lane in self._lanes.items() if source == number)
            for number in range(self._plan.num_sources)
        ]

    def _make(self) -> LocalBatch:
        of_rows = self._plan.sources_of_rows(self._batches)
        parts = []
        for (number, source), lane in self._lanes.items():
            of_lane = self._rows_of_lanes[number]
            rows = of_lane[of_rows[of_lane] == source]
            if len(rows):
                parts.append((self._places[rows], lane.next_stretch(len(rows))))
            else:
                lane.next_nothing()
        self._batches += 1
        windows = pack(parts, len(self.rows), self._sequence_length, blocks_attention=self._plan.blocks_attention)
        left = max(lane.batches_left() for lane in self._lanes.values())
        return LocalBatch(**vars(windows), rows=self.rows, state=self._state_of_rows(), batches_left=left)

    def _state_of_rows(self) -> np.ndarray:
        packed = pack_positions(self._identity, [lane.position for lane in self._lanes.values()])
        of_lanes = packed.reshape(-1, self._plan.num_sources * packed.shape[1])
        return of_lanes[self._lane_of_rows]

    def _start_read(self, source: int, unit: int, epoch: int, first: int) -> Callable[[], UnitRows]:
        def read() -> UnitRows:
            raw = self._reader.read(unit)
            order = row_order(len(raw.column), "rows", self._plan.seed, epoch, unit)
            return usable_rows(raw, order, first, self._kinds[source])

        return self._pool.submit(read) if self._pool else read
