"""Batches of samples of webdataset tars, and of evaluation: the same ones for any number of processes.

The tars are the units: as for text, the plan determines which lane reads which one, and in which order. A lane has no
end; its position is a tar, and the next sample in that tar's shuffled order.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xxhash

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import row_order
from tpujob_trainer.data.manifest.plan import LanePlan, plan_lanes
from tpujob_trainer.data.manifest.reader import RetryingReader, UnitReader
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.stream.loader import BatchLoader, LocalBatch
from tpujob_trainer.data.stream.position import pack_positions, unpack_state
from tpujob_trainer.data.stream.prefetch import Pending, ReadPool
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.values.errors import ConfigurationError

_READ_THREADS = 4

StartRead = Callable[[int, int], Pending[list[Sample]]]
"""Starts to read a unit in the order of an epoch."""


class SampleLane:
    """The samples of one lane, starting at a position; the tar after the current one is read ahead."""

    def __init__(self, plan: LanePlan, number: int, start_read: StartRead, position: LanePosition) -> None:
        self.position = position
        self._plan = plan
        self._number = number
        self._start_read = start_read
        self._samples: list[Sample] | None = None
        self._next = self._begin(position.epoch, position.unit)
        self._empty = 0

    def take(self, count: int) -> list[Sample]:
        """The next samples; moves the position past them.

        Raises:
            ConfigurationError: there is no sample in any tar of this lane.
        """
        taken: list[Sample] = []
        at, digest = self.position, self.position.digest
        epoch, unit, row = at.epoch, at.unit, at.row
        while len(taken) < count:
            if self._samples is None:
                self._samples = self._next.wait()
                self._next = self._begin(*self._after(epoch, unit))
            few = self._samples[row : row + count - len(taken)]
            for sample in few:
                digest = _chained(digest, sample)
            taken += few
            row += len(few)
            if len(taken) < count:
                self._require_samples(len(self._samples))
                (epoch, unit), row, self._samples = self._after(epoch, unit), 0, None
        self.position = LanePosition(epoch, unit, row, 0, at.batches + 1, digest)
        return taken

    def _begin(self, epoch: int, unit: int) -> Pending[list[Sample]]:
        return self._start_read(self._plan.unit(self._number, epoch, unit), epoch)

    def _after(self, epoch: int, unit: int) -> tuple[int, int]:
        return (epoch, unit + 1) if unit + 1 < self._plan.units_in(self._number) else (epoch + 1, 0)

    def _require_samples(self, found: int) -> None:
        self._empty = 0 if found else self._empty + 1
        if self._empty >= self._plan.units_in(self._number):
            raise ConfigurationError(
                f"data.path: {self._empty} tars, one after the other, hold no sample; look into one"
            )


class SampleLoader(Iterator[list[Sample]]):
    """The samples of the rows that this process holds, one for each row; close it to end its threads."""

    def __init__(
        self,
        manifest: Manifest,
        plan: LanePlan,
        identity: int,
        *,
        rows: Sequence[int] | np.ndarray,
        state: np.ndarray | None = None,
    ) -> None:
        """Starts to read.

        Args:
            manifest: Of webdataset tars.
            plan: The same on all processes.
            identity: Of the run's data (`identity_of`).
            rows: Rows of the global batch that this process holds, ascending.
            state: Of the last batch consumed, int32 [lanes of all processes, columns]; None: start at the beginning.

        Raises:
            ConfigurationError: the state is not one of this data and plan.
        """
        self._plan = plan
        self._identity = identity
        self._rows = [int(row) for row in rows]
        self._reader = RetryingReader(UnitReader(manifest, limit_seconds=plan.retry_seconds), plan.retry_seconds)
        self._pool = ReadPool(_READ_THREADS)
        begun = {} if state is None else unpack_state(state, plan, identity)
        self._lanes = {
            number: SampleLane(plan, number, self._start_read, begun.get((number, 0), LanePosition()))
            for number in plan.lanes_of(self._rows)
        }

    @property
    def state(self) -> np.ndarray:
        """The position after the last batch taken, of the lanes of this process, int32 [lanes, columns]."""
        return pack_positions(self._identity, np.array([lane.position.numbers() for lane in self._lanes.values()]))

    def __next__(self) -> list[Sample]:
        """The samples of the next batch, in the order of their rows; waits for storage if they are not read yet."""
        of_rows = {
            row: sample
            for number, lane in self._lanes.items()
            for row, sample in zip(self._plan.rows_of(number), lane.take(self._plan.rows_per_lane), strict=True)
        }
        return [of_rows[row] for row in self._rows]

    def close(self) -> None:
        """Ends the threads."""
        self._pool.close()

    def _start_read(self, unit: int, epoch: int) -> Pending[list[Sample]]:
        return self._pool.submit(functools.partial(self._read, unit, epoch))

    def _read(self, unit: int, epoch: int) -> list[Sample]:
        samples = self._reader.samples(unit)
        return [samples[row] for row in row_order(len(samples), "rows", self._plan.seed, epoch, unit)]


def _chained(digest: int, sample: Sample) -> int:
    """The digest after one more sample: of its name, and of each field's name, length and content."""
    found = xxhash.xxh3_64(seed=digest)
    found.update(sample.key.encode(errors="surrogateescape"))
    for name, content in sorted(sample.fields.items()):
        found.update(f"\0{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        found.update(content)
    return found.intdigest()


def evaluation_batches(
    manifest: Manifest,
    tokenizer: Tokenizer,
    config: DataConfig,
    *,
    batch_size: int,
    sequence_length: int,
    rows: Sequence[int] | np.ndarray,
    batches: int,
) -> Callable[[], contextlib.AbstractContextManager[Iterator[LocalBatch]]]:
    """A function that opens `batches` batches from the beginning of the data, all of one shape; logs only once.

    No row is repeated: if the data ends earlier, rows are padded with positions that do not count, and a batch in which
    nothing counts on any process is past the end. A mixture has no end.

    Args:
        manifest: the data.
        tokenizer: the same on all processes.
        config: of the data; its lanes, which are those of the training, are ignored.
        batch_size: rows of a global batch.
        sequence_length: inputs of a row.
        rows: rows of the global batch this process holds, ascending.
        batches: how many.
    """
    once = dataclasses.replace(config, lanes=None, epochs=None if config.mixture else 1)
    plan = plan_lanes(manifest, once, batch_size=batch_size, seed=0)
    opened = itertools.count()

    @contextlib.contextmanager
    def open_batches() -> Iterator[Iterator[LocalBatch]]:
        is_logged = next(opened) == 0
        with BatchLoader(manifest, tokenizer, plan, sequence_length, rows=rows, is_logged=is_logged) as loader:
            yield itertools.islice(loader, batches)

    return open_batches
