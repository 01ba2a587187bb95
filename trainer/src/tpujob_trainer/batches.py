"""Global batches: rows of each process become its part of arrays over all devices; the data position goes with them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.data import LocalBatch
from tpujob_trainer.model.partitioning import ROWS
from tpujob_trainer.signals import Signals
from tpujob_trainer.train_step import Batch


def rows_here(mesh: Mesh, batch_size: int) -> np.ndarray:
    """The rows of a global batch that this process's devices hold, ascending.

    Read from the sharding, never worked out from the process number: rows need not be contiguous, and with an axis
    across hosts two processes hold the same ones.
    """
    held: set[int] = set()
    for index in NamedSharding(mesh, ROWS).addressable_devices_indices_map((batch_size,)).values():
        assert index is not None
        held.update(range(*index[0].indices(batch_size)))
    return np.array(sorted(held), np.int32)


class Assembler:
    """Makes global arrays from the rows of this process."""

    def __init__(self, mesh: Mesh, batch_size: int) -> None:
        self.rows = rows_here(mesh, batch_size)
        self._batch_size = batch_size
        self._sharding = NamedSharding(mesh, ROWS)

    def array(self, local: np.ndarray) -> jax.Array:
        """The global array `[batch, ...]` of which `local` `[rows, ...]` are this process's rows."""

        def part(index: tuple[slice, ...]) -> np.ndarray:
            first = index[0].indices(self._batch_size)[0]
            start = int(np.searchsorted(self.rows, first))
            count = len(range(*index[0].indices(self._batch_size)))
            # A copy: on CPU jax may keep the memory it is given, and the loader's arrays are not ours.
            return local[start : start + count].copy()

        return jax.make_array_from_callback((self._batch_size, *local.shape[1:]), self._sharding, part)

    def batch(self, local: LocalBatch, signals: Signals) -> Batch:
        """The batch as the step takes it."""
        return Batch(
            inputs=self.array(local.inputs),
            targets=self.array(local.targets),
            segment_ids=self.array(local.segment_ids),
            positions=self.array(local.positions),
            loss_mask=self.array(local.loss_mask),
            signals=self.array(np.tile(signals.pack(), (len(self.rows), 1))),
        )


class Feed:
    """The run's batches one after the other, and the position after the last one taken."""

    def __init__(self, loader: Iterator[LocalBatch], assembler: Assembler, position: np.ndarray) -> None:
        """`position` is int32 [rows, columns] before the first batch."""
        self._loader = loader
        self._assembler = assembler
        self._position = position
        self.wait_seconds = 0.0
        """Time spent waiting for the loader so far."""

    def take(self, say: Callable[[], Signals]) -> Batch:
        """The next batch, with what this process has to say once it is there; waits for the loader."""
        began = time.monotonic()
        local = next(self._loader)
        self.wait_seconds += time.monotonic() - began
        self._position = local.state
        return self._assembler.batch(local, dataclasses.replace(say(), batches_left=local.batches_left))

    def position(self) -> jax.Array:
        """int32 [batch, columns], rows over all devices: belongs into the checkpoint of the present state."""
        return self._assembler.array(self._position)
