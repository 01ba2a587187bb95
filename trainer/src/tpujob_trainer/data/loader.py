"""The rows of the global batch that this process holds, batch after batch, read ahead by a thread.

- Which rows: told by the caller, who reads it from the sharding; never worked out from a process number.
- The state belongs to the batch it comes with, not to what has been read ahead.
- What goes wrong in a thread is raised by `next()`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from tpujob_trainer.data.lane import Lane, LanePosition, RowCounts, Windows
from tpujob_trainer.data.manifest import Manifest
from tpujob_trainer.data.plan import LanePlan
from tpujob_trainer.data.reader import UnitReader, UnitTexts
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
        if (
            not len(self.rows)
            or (np.diff(self.rows) <= 0).any()
            or self.rows[0] < 0
            or self.rows[-1] >= plan.batch_size
        ):
            raise ValueError(f"rows must ascend within 0…{plan.batch_size - 1}: {self.rows.tolist()}")
        self.counts = RowCounts()
        self.units_read: list[int] = []
        self.wait_seconds = 0.0
        self._plan = plan
        self._identity = identity_of(describe_data(manifest, tokenizer, plan, sequence_length))
        positions = [LanePosition()] * plan.lanes if state is None else unpack_state(state, plan, self._identity)
        self._reader = reader or UnitReader(manifest)
        self._pool = concurrent.futures.ThreadPoolExecutor(_READ_THREADS, "read") if prefetch else None
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
        self.state = self._state_of_rows()
        self._ahead = _Ahead(self._make, prefetch) if prefetch else None

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
            self._pool.shutdown(wait=False, cancel_futures=True)

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

    def _start_read(self, unit: int) -> Callable[[], UnitTexts]:
        if self._pool is None:
            return lambda: self._read(unit)
        return self._pool.submit(self._read, unit).result

    def _read(self, unit: int) -> UnitTexts:
        texts = self._reader.read(unit)
        self.units_read.append(unit)
        return texts


class _Ahead:
    """Runs a function in a thread, over and over, and holds at most so many results."""

    def __init__(self, make: Callable[[], LocalBatch], depth: int) -> None:
        self._make = make
        self._depth = depth
        self._made: collections.deque[LocalBatch] = collections.deque()
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def take(self) -> LocalBatch:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._error or self._closed)
            if self._made:
                self._changed.notify_all()
                return self._made.popleft()
            if self._error:
                raise self._error
            raise ValueError("the loader is closed")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._made.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._made) < self._depth or self._closed)
                if self._closed:
                    return
            try:
                batch = self._make()
            except BaseException as error:  # noqa: BLE001 - raised again by take(), in the thread that can act on it
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                if not self._closed:
                    self._made.append(batch)
                    self._changed.notify_all()
