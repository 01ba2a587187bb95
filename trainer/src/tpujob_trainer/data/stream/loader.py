"""The rows of the global batch that this process holds, batch after batch, read ahead by a thread.

- The caller gives the rows, which it reads from the sharding; they are never derived from a process number.
- The state belongs to the batch that it comes with, not to what has been read ahead.
- An error in a thread is raised by `next()`.
"""

import collections
import functools
import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import row_order
from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.manifest.reader import RetryingReader, UnitReader
from tpujob_trainer.data.stream.lane import BATCHES_AHEAD, POSITION_NUMBERS, Lane, LanePosition
from tpujob_trainer.data.stream.packing import pack
from tpujob_trainer.data.stream.position import (
    STATE_COLUMNS,
    describe_data,
    describe_share,
    identity_of,
    pack_positions,
    unpack_state,
)
from tpujob_trainer.data.stream.prefetch import Ahead, Deferred, Pending, ReadPool
from tpujob_trainer.data.stream.rows import SkippedRows, UnitRows, usable_rows
from tpujob_trainer.data.text.documents import documents_of, kind_of
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.storage.read_meter import METER

logger = logging.getLogger(__name__)

_READ_THREADS = 8
_TOKENS_AT_ONCE, _BATCHES_AT_ONCE = 1 << 18, 64
"""Limits for small batches, several of which are made at once to share the cost of each numpy call."""


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
    """bool [rows, S]: False where the target begins another document, or is not learned."""
    rows: np.ndarray
    """int32 [rows]: which rows of the global batch these are, ascending."""
    state: np.ndarray
    """int32 [lanes, columns]: the position after this batch; the positions of all processes' lanes restore any
    process."""
    lanes: np.ndarray
    """int32 [lanes]: which lanes fill these rows, ascending."""
    batches_left: int
    """How many batches after this one have data for the rows of this process; 2 means two or more. The data of the run
    ends after the batch for which the maximum over all processes is 0."""


@dataclass(frozen=True)
class _Share:
    """The rows that a lane fills in batches that are made together."""

    ends: np.ndarray
    """int64 [batches]: inputs up to the end of each."""
    rows: np.ndarray
    """The index of each of the lane's rows among this process's rows of these batches; -1: another process holds it."""


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
        is_logged: bool = True,
    ) -> None:
        """Starts to read.

        Args:
            manifest: the data.
            tokenizer: the same on all processes.
            plan: the same on all processes.
            sequence_length: inputs of a row.
            rows: rows of the global batch this process holds, ascending.
            state: of the last batch consumed, int32 [lanes of all processes, columns]; None: start at the beginning.
            prefetch: batches that are made before `next()` asks for them (small ones are made several at once); 0 makes
                them in `next()` itself.
            reader: reads the units; made from the manifest if None.
            is_logged: whether what is read, and what cannot be used, is logged.

        Raises:
            ConfigurationError: the state is not one of this data, tokenizer and plan.
        """
        self.rows = np.asarray(rows, dtype=np.int32)
        if not len(self.rows) or (np.diff(self.rows, prepend=-1, append=plan.batch_size) <= 0).any():
            raise ValueError(f"rows must ascend within 0…{plan.batch_size - 1}: {self.rows.tolist()}")
        self.counts = SkippedRows(manifest.name_row, max_fraction=plan.max_skipped_fraction, is_logged=is_logged)
        self.wait_seconds = 0.0
        self._plan = plan
        described = describe_data(manifest, tokenizer, plan, sequence_length)
        self._identity = identity_of(described)
        begun = {} if state is None else unpack_state(state, plan, self._identity)
        reader = reader or UnitReader(manifest, limit_seconds=plan.retry_seconds)
        self._reader = RetryingReader(reader, plan.retry_seconds)
        self._pool = ReadPool(_READ_THREADS) if prefetch else None
        self._kinds = [kind_of(source.column, tokenizer) for source in manifest.sources]
        self._sequence_length = sequence_length
        self.lanes = np.array(plan.lanes_of(self.rows), dtype=np.int32)
        keys = itertools.product(plan.lanes_of(self.rows), range(plan.num_sources))
        first = {key: begun.get(key, LanePosition()) for key in keys}
        self._lanes = {key: self._lane(manifest, tokenizer, *key, at) for key, at in first.items()}
        self._rows_of_lanes = {number: np.array(plan.rows_of(number)) for number, _ in self._lanes}
        self._places = _index_of(self.rows, plan.batch_size)
        positions = np.array([position.numbers() for position in first.values()])
        self._batches = int(positions[0, 4])
        self._at_once = min(max(1, _TOKENS_AT_ONCE // (len(self.rows) * sequence_length)), _BATCHES_AT_ONCE)
        self._made: collections.deque[LocalBatch] = collections.deque()
        self._sources: collections.deque[tuple[int, np.ndarray]] = collections.deque()
        self._shares_made: dict[tuple[int, int], _Share] = {}
        self.state = self._states(positions[:, None])[0]
        if is_logged:
            self._log_start(manifest, first)
        self._ahead = Ahead(self._make_some, prefetch) if prefetch else None

    def _log_start(self, manifest: Manifest, first: Mapping[tuple[int, int], LanePosition]) -> None:
        logger.info(
            "Reading data: root=%s lanes=%d/%d rows=%d/%d epochs=%s batches=%d",
            ",".join(source.root for source in manifest.sources), len(first), self._plan.lanes * self._plan.num_sources,
            len(self.rows), self._plan.batch_size, self.epochs, self._batches,
        )  # fmt: skip
        logger.info("First rows of this process: %s", describe_share(manifest, self._plan, first))

    def _lane(self, manifest: Manifest, tokenizer: Tokenizer, number: int, source: int, position: LanePosition) -> Lane:
        column = manifest.sources[source].column
        return Lane(
            self._plan,
            number,
            documents=documents_of(column, tokenizer),
            sequence_length=self._sequence_length,
            start_read=functools.partial(self._start_read, source),
            skipped=self.counts,
            field=column.field,
            source=source,
            position=position,
        )

    def __next__(self) -> LocalBatch:
        """The next batch; waits for it if it is not ready."""
        began = time.monotonic()
        with METER.waiting():
            batch = self._ahead.take() if self._ahead else self._make()
        self.wait_seconds += time.monotonic() - began
        self.state = batch.state
        return batch

    def close(self) -> None:
        """Ends the threads; batches made ahead are dropped."""
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
        """The passes completed at the last batch taken, for each source: those of this process's slowest lane."""
        of_lanes = self.state.reshape(len(self.lanes), self._plan.num_sources, -1)
        epochs: list[int] = of_lanes[:, :, STATE_COLUMNS.index("epoch")].min(axis=0).tolist()
        return epochs

    def _make(self) -> LocalBatch:
        if not self._made:
            self._made.extend(self._make_some())
        return self._made.popleft()

    def _make_some(self) -> list[LocalBatch]:
        """The next batch, and those after it that need no waiting."""
        shares = self._shares()
        count = self._at_once
        for key, lane in self._lanes.items():
            count = lane.ready(shares[key].ends[:count])
        parts = []
        positions = np.empty((len(self._lanes), count, POSITION_NUMBERS), dtype=np.int64)
        left = np.full(count, 0 if self._plan.epochs else BATCHES_AHEAD)
        for number, (key, lane) in enumerate(self._lanes.items()):
            ends = shares[key].ends[:count]
            if self._plan.epochs:
                left = np.maximum(left, lane.batches_left(ends))
            span, positions[number] = lane.take(ends)
            if span is not None:
                parts.append((shares[key].rows[: int(ends[-1]) // self._sequence_length], span))
        self._batches += count
        num_rows = len(self.rows)
        made = pack(parts, count * num_rows, self._sequence_length, blocks_attention=self._plan.blocks_attention)
        states = self._states(positions)
        return [
            LocalBatch(
                **{name: array[number * num_rows : (number + 1) * num_rows] for name, array in vars(made).items()},
                rows=self.rows,
                state=states[number],
                lanes=self.lanes,
                batches_left=int(left[number]),
            )
            for number in range(count)
        ]

    def _shares(self) -> dict[tuple[int, int], _Share]:
        """The rows that each lane fills in the next batches."""
        if self._plan.num_sources == 1 and self._shares_made:
            return self._shares_made
        while self._sources and self._sources[0][0] < self._batches:
            self._sources.popleft()
        for batch in range(self._batches + len(self._sources), self._batches + self._at_once):
            self._sources.append((batch, self._plan.sources_of_rows(batch)))
        of_rows = np.array([sources for _, sources in self._sources])
        first_rows = np.arange(self._at_once)[:, None] * len(self.rows)
        for number, source in self._lanes:
            rows = self._rows_of_lanes[number]
            is_mine = of_rows[:, rows] == source
            places = np.where(self._places[rows] >= 0, self._places[rows] + first_rows, -1)
            ends = np.cumsum(is_mine.sum(axis=1)) * self._sequence_length
            self._shares_made[number, source] = _Share(ends, places[is_mine])
        return self._shares_made

    def _states(self, positions: np.ndarray) -> np.ndarray:
        """int32 [batches, lanes, columns], from int64 [lanes and sources, batches, 6]."""
        packed = pack_positions(self._identity, positions.swapaxes(0, 1))
        return packed.reshape(len(packed), -1, self._plan.num_sources * packed.shape[-1])

    def _start_read(self, source: int, unit: int, epoch: int, first: int) -> Pending[UnitRows]:
        def read() -> UnitRows:
            raw = self._reader.read(unit)
            order = row_order(len(raw.column), "rows", self._plan.seed, epoch, unit)
            return usable_rows(raw, order, first, self._kinds[source])

        return self._pool.submit(read) if self._pool else Deferred(read)


def _index_of(rows: np.ndarray, batch_size: int) -> np.ndarray:
    """int64 [batch_size]: the index of each row of the global batch in `rows`; -1: it is in none."""
    index = np.full(batch_size, -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    return index
