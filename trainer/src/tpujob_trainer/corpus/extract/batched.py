"""The work on a unit: reads its rows as tokens, runs a program on them in batches, and writes the files.

The thread that sends batches to the devices does nothing else: another one fetches their values, so that the devices
have the first batches of a unit before the last values of the previous unit have arrived.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch, batch_rows, part_sizes, plan_alone, plan_packed
from tpujob_trainer.corpus.extract.programs import Outputs, Program
from tpujob_trainer.corpus.extract.rows import ReadsRows, Rows
from tpujob_trainer.corpus.extract.sequences import Sequences, filled
from tpujob_trainer.corpus.extract.shards import UnitTable, write_shards
from tpujob_trainer.corpus.extract.units import UnitValues
from tpujob_trainer.corpus.workers.work import Packed, UnitsConfig

UNDER_WAY = 3
"""Batches that were sent to the devices and whose values have not arrived yet: one that is copied to the host, one that
is computed, one that waits."""

Flops = Callable[[np.ndarray], int]
"""Returns the operations that rows of these lengths need, int64 `[rows]`; padding is not counted."""
Arrange = Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]]
"""Converts a program's columns to those of the files, NumPy or Arrow arrays."""


class Computing:
    """A unit whose batches were sent to the devices."""

    def __init__(self, rows: Rows, values: UnitValues, fetched: list[Future[None]]) -> None:
        """`fetched` are done when all values have arrived."""
        self.rows = rows
        self._values, self._fetched = values, fetched

    def values(self) -> UnitValues:
        """The values that the program computed from its rows; waits until all have arrived.

        Raises:
            Exception: the error of a computation or a fetch.
        """
        for each in self._fetched:
            each.result()
        return self._values


class BatchedWork:
    """Runs a program over units, for the engine of independent workers."""

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
        flops: Flops | None = None,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Computes nothing yet.

        Args:
            config: how the files are written.
            tokens: reads the rows of units.
            program: computes a batch.
            buckets: lengths of sequences, ascending.
            batch: sequences of a batch of the longest length.
            first_sample: the sample number of the first row of a unit.
            arrange: converts the program's columns to those of the files.
            flops: of rows; None: unknown.
            on_batch: called after each batch is sent to the devices.
        """
        self._config = config
        self._tokens = tokens
        self._program = program
        self._buckets = buckets
        self._batch = batch
        self._sizes = part_sizes(batch, program.devices)
        self._first_sample = first_sample
        self._arrange = arrange
        self._flops = flops
        self._on_batch = on_batch
        self._fetcher = ThreadPoolExecutor(1, "fetch")
        self._room = threading.BoundedSemaphore(UNDER_WAY)

    def compile(self) -> None:
        """Compiles the program for every shape of batch."""
        longest = self._buckets[-1]
        shapes = [(batch_rows(length, longest=longest, rows=self._batch), length) for length in self._buckets]
        if self._program.is_packed:
            shapes += [(size, longest) for size in self._sizes[:-1]]
        for size, length in shapes:
            self._program.compiled(size, length)

    def read(self, unit: int) -> Rows:
        """The rows of a unit as tokens."""
        return self._tokens(unit)

    def compute(self, rows: Rows) -> Computing:
        """Sends the rows to the devices; returns while the last of them are computed."""
        values = UnitValues(rows, self._program.per_token)
        fetched = []
        for batch in self.plan(rows):
            sequences = self.filled(rows, batch)
            self._room.acquire()
            fetched.append(self._fetcher.submit(self._fetch, values, batch, self._started(sequences)))
            self._on_batch()
        return Computing(rows, values, fetched)

    def plan(self, rows: Rows) -> list[Batch]:
        """The batches of a unit, always the same ones."""
        if self._program.is_packed:
            return plan_packed(rows.lengths, self._buckets, self._sizes)
        return plan_alone(rows.lengths, self._buckets, self._batch)

    def filled(self, rows: Rows, batch: Batch) -> Sequences:
        """The sequences of a batch of a unit."""
        return filled(rows, batch, self._samples(rows), self._program.most_rows(batch.length))

    def _started(self, sequences: Sequences) -> Outputs:
        outputs = self._program(sequences)
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
        """Bytes of its values and tokens; waits for the values."""
        columns = computed.values().columns
        return sum(values.nbytes for values in columns.values()) + computed.rows.tokens.nbytes

    def pack(self, computed: Computing, folder: Path, name: str) -> Packed:
        """Writes the files of a unit, and returns them."""
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
        flops = self._flops and self._flops(rows.lengths)
        return Packed(files, int(rows.lengths.sum()), rows.skipped, table.checksum(), values.statistics, flops)

    def _samples(self, rows: Rows) -> np.ndarray:
        """The numbers of the rows in the corpus: int64 [rows]."""
        return self._first_sample(rows.unit) + rows.places.astype(np.int64)
