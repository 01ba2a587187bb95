"""The work of a unit: its rows as tokens, what a program makes of them in batches, and the files of both.

The thread that gives batches to the devices does nothing else: another one fetches their values, so that the devices
have the first batches of a unit before the last ones of the unit before have arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch, batch_rows, plan_batches
from tpujob_trainer.corpus.extract.program import Outputs, Program
from tpujob_trainer.corpus.extract.rows import ReadsRows, Rows
from tpujob_trainer.corpus.extract.shards import UnitTable, write_shards
from tpujob_trainer.corpus.extract.unit_values import UnitValues
from tpujob_trainer.corpus.workers.config import UnitsConfig
from tpujob_trainer.corpus.workers.work import Packed

UNDER_WAY = 3
"""Batches that the devices have been given, and whose values have not arrived yet: one that is copied to the host, one
that is computed, one that waits."""

Arrange = Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]]
"""From a program's columns to those of the files, arrays of numpy or of Arrow."""


class Computing:
    """A unit whose batches the devices have."""

    def __init__(self, rows: Rows, values: UnitValues, fetched: list[Future[None]]) -> None:
        """`fetched` is done when all values are there."""
        self.rows = rows
        self._values, self._fetched = values, fetched

    def values(self) -> UnitValues:
        """What the program made of its rows; waits until all is there.

        Raises:
            Exception: what kept the devices from computing it.
        """
        for each in self._fetched:
            each.result()
        return self._values


class BatchedWork:
    """A program over units, for the engine of independent workers."""

    def __init__(
        self,
        config: UnitsConfig,
        tokens: ReadsRows,
        program: Program,
        *,
        buckets: tuple[int, ...],
        batch: int,
        first_sample: Callable[[int], int],
        arrange: Arrange = dict,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Computes nothing yet.

        Args:
            config: how the files are written.
            tokens: of units.
            program: what is computed of a batch.
            buckets: row lengths, ascending.
            batch: rows of a batch of the longest length.
            first_sample: the sample number of the first row of a unit.
            arrange: makes the files' columns of the program's.
            on_batch: is called after each batch.
        """
        self._config = config
        self._tokens = tokens
        self._program = program
        self._buckets = buckets
        self._batch = batch
        self._first_sample = first_sample
        self._arrange = arrange
        self._on_batch = on_batch
        self._fetcher = ThreadPoolExecutor(1, "fetch")
        self._room = threading.BoundedSemaphore(UNDER_WAY)

    def compile(self) -> None:
        """Compiles the program for every length."""
        for length in self._buckets:
            self._program.compiled(self._rows_of(length), length)

    def read(self, unit: int) -> Rows:
        """The rows of a unit as tokens."""
        return self._tokens(unit)

    def compute(self, rows: Rows) -> Computing:
        """Its rows, given to the devices; returns while the last of them are computed."""
        values = UnitValues(rows, self._program.per_token)
        fetched = []
        for batch in plan_batches(rows.lengths, self._buckets, self._batch):
            filled = self._filled(rows, batch)
            self._room.acquire()
            fetched.append(self._fetcher.submit(self._fetch, values, batch, self._started(*filled)))
            self._on_batch()
        return Computing(rows, values, fetched)

    def _started(self, *filled: np.ndarray) -> Outputs:
        outputs = self._program(*filled)
        for kept in outputs.values():
            for array in kept.values():
                array.copy_to_host_async()
        return outputs

    def _fetch(self, values: UnitValues, batch: Batch, outputs: Outputs) -> None:
        try:
            values.add(batch, outputs)
        finally:
            self._room.release()

    def size(self, computed: Computing) -> int:
        """Bytes of its values; waits for them."""
        columns = computed.values().columns
        return sum(values.nbytes for values in columns.values()) + computed.rows.tokens.nbytes

    def pack(self, computed: Computing, folder: Path, name: str) -> Packed:
        """The files of a unit."""
        rows, values = computed.rows, computed.values()
        table = UnitTable(
            unit=rows.unit,
            samples=self._samples(rows),
            rows=rows.places,
            tokens=rows.tokens,
            lengths=rows.lengths,
            columns=self._arrange(values.columns),
            per_token=self._program.per_token,
        )
        files = write_shards(
            table,
            folder,
            name,
            file_format=self._config.format,
            compression=self._config.compression,
            shard_bytes=self._config.shard_bytes,
        )
        return Packed(files, int(rows.lengths.sum()), rows.skipped, table.checksum(), values.statistics)

    def _rows_of(self, length: int) -> int:
        return batch_rows(length, longest=self._buckets[-1], rows=self._batch)

    def _samples(self, rows: Rows) -> np.ndarray:
        """int64 [rows], numbers in the corpus."""
        return self._first_sample(rows.unit) + rows.places.astype(np.int64)

    def _filled(self, rows: Rows, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens `[B, S]`, lengths and sample numbers `[B]`, with rows of nothing at the end if there are too few."""
        tokens = np.zeros((self._rows_of(batch.length), batch.length), dtype=np.int32)
        lengths, samples = np.zeros(len(tokens), dtype=np.int32), np.zeros(len(tokens), dtype=np.int32)
        samples[: len(batch.rows)] = self._samples(rows)[batch.rows] & 0x7FFFFFFF
        ends = np.cumsum(rows.lengths)
        for place, row in enumerate(batch.rows.tolist()):
            length = int(rows.lengths[row])
            tokens[place, :length] = rows.tokens[ends[row] - length : ends[row]]
            lengths[place] = length
        return tokens, lengths, samples
