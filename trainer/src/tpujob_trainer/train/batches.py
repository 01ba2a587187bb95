"""Global batches: makes arrays over all devices from the rows of each process, and tracks the data position."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.data import LocalBatch, batches_digest
from tpujob_trainer.model.partitioning import REPLICATED, ROWS
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import Batch
from tpujob_trainer.values.errors import TrainerError

_DISAGREE = np.int32(-1)
"""In all columns of a lane about which processes disagree; never a valid state of a lane."""


def rows_here(mesh: Mesh, batch_size: int, rows: PartitionSpec = ROWS) -> np.ndarray:
    """The rows of a global batch that this process's devices hold, ascending.

    They are read from the sharding, not computed from the process index: rows need not be contiguous, and two processes
    hold the same ones if an axis spans hosts.
    """
    held: set[int] = set()
    for index in NamedSharding(mesh, rows).addressable_devices_indices_map((batch_size,)).values():
        assert index is not None
        held.update(range(*index[0].indices(batch_size)))
    return np.array(sorted(held), np.int32)


@dataclasses.dataclass(frozen=True)
class Position:
    """The position in the data after some batches, for their checkpoint."""

    of_lanes: jax.Array
    """int32 [lanes, columns], the same on all devices."""
    digest: str
    """Of all tokens of these batches (`data.batches_digest`)."""


class Assembler:
    """Makes global arrays from the rows of this process."""

    def __init__(self, mesh: Mesh, batch_size: int, lanes: int, *, rows: PartitionSpec = ROWS) -> None:
        """`lanes` is the number of lanes, which fill equally many rows of a batch; `rows` is the partition of rows."""
        self.rows = rows_here(mesh, batch_size, rows)
        self._batch_size = batch_size
        self._rows_per_lane = batch_size // lanes
        self._sharding = NamedSharding(mesh, rows)
        gather = functools.partial(_of_lanes, rows_per_lane=self._rows_per_lane)
        self._gather = jax.jit(gather, out_shardings=NamedSharding(mesh, REPLICATED))

    def array(self, local: np.ndarray) -> jax.Array:
        """The global array `[batch, ...]`, of which `local` `[rows, ...]` has this process's rows."""

        def part(index: tuple[slice, ...]) -> np.ndarray:
            first = index[0].indices(self._batch_size)[0]
            start = int(np.searchsorted(self.rows, first))
            count = len(range(*index[0].indices(self._batch_size)))
            # A copy: on CPU JAX may keep the memory that it gets, and the arrays are the loader's.
            return local[start : start + count].copy()

        return jax.make_array_from_callback((self._batch_size, *local.shape[1:]), self._sharding, part)

    def batch(self, local: LocalBatch, signals: StepFlags) -> Batch:
        """The batch in the form that the step takes."""
        return Batch(
            inputs=self.array(local.inputs),
            targets=self.array(local.targets),
            segment_ids=self.array(local.segment_ids),
            positions=self.array(local.positions),
            loss_mask=self.array(local.loss_mask),
            signals=self.array(np.tile(signals.pack(), (len(self.rows), 1))),
        )

    def position(self, state: np.ndarray) -> Position:
        """The position of all lanes, from that of the lanes that fill this process's rows, int32 [lanes, columns].

        All processes must call this.

        Raises:
            TrainerError: processes that share a lane have read different data.
        """
        lanes = self.rows // self._rows_per_lane
        found = self._gather(self.array(state[np.searchsorted(np.unique(lanes), lanes)]))
        whole = np.asarray(found)
        torn = np.flatnonzero((whole == _DISAGREE).all(axis=1))
        if len(torn):
            error = TrainerError(
                f"spec.trainer.data: the hosts that share lane {torn[0]} ({len(torn)} in all) have made other tokens "
                "of the same rows; look for hosts with other files under the same path, or another image"
            )
            error.is_shared = True
            raise error
        return Position(found, batches_digest(whole))


def _of_lanes(state: jax.Array, *, rows_per_lane: int) -> jax.Array:
    """The state of each lane, from an array with a row for each row of the batch."""
    rows = state.reshape(-1, rows_per_lane, state.shape[-1])
    first = rows[:, :1]
    agree = (rows == first).all(axis=(1, 2))
    return jnp.where(agree[:, None], first[:, 0], _DISAGREE)


class Feed:
    """The batches of a run, and the position after the last one taken."""

    def __init__(self, loader: Iterator[LocalBatch], assembler: Assembler, position: np.ndarray) -> None:
        """`position` is that before the first batch, int32 [lanes, columns], of the lanes of this process's rows."""
        self._loader = loader
        self._assembler = assembler
        self._position = position
        self.wait_seconds = 0.0
        """Time spent waiting for the loader so far."""

    def take(self, get_flags: Callable[[], StepFlags]) -> Batch:
        """The next batch, with this process's flags at the time when it is loaded; waits for the loader."""
        began = time.monotonic()
        local = next(self._loader)
        self.wait_seconds += time.monotonic() - began
        self._position = local.state
        return self._assembler.batch(local, dataclasses.replace(get_flags(), batches_left=local.batches_left))

    def position(self) -> Position:
        """The position for the checkpoint of the current state. All processes must call this."""
        return self._assembler.position(self._position)
