"""The same global batches whatever the number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer import data
from tpujob_trainer.config_parsing import parse
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.tasks.dataset import Dataset, training_data
from tpujob_trainer.train.batches import Assembler, Position


class Batch(NamedTuple):
    """Rows of a global batch as arrays over all devices; B rows of S tokens. A pytree."""

    inputs: jax.Array
    """int32 [B, S]"""
    targets: jax.Array
    """int32 [B, S]: the token after each input."""
    loss_mask: jax.Array
    """bool [B, S]: False where the target begins another document, or is not learned."""
    segment_ids: jax.Array
    """int32 [B, S], from 1: positions with another id belong to another document."""
    positions: jax.Array
    """int32 [B, S], from 0 at the beginning of each segment."""


@dataclass(frozen=True, kw_only=True)
class BatchesConfig:
    """What batches depend on."""

    data: data.DataConfig
    batch_size: int
    sequence_length: int
    seed: int


class Lanes(Iterator[Batch]):
    """Endless batches, each read by the processes whose devices hold its rows; the state goes into the checkpoint."""

    def __init__(
        self, config: BatchesConfig, mesh: Mesh, rows: PartitionSpec, runtime: Runtime, directory: str | None
    ) -> None:
        """Makes, or reads, the list of what there is to read; reads nothing else yet.

        Raises:
            ConfigurationError: there is no such data, or it is not what the checkpoints were made from.
        """
        self.mesh = mesh
        self.tokenizer = data.load_tokenizer(config.data)
        self._dataset: Dataset = training_data(config, self.tokenizer, directory=directory, runtime=runtime)
        self._sequence_length = config.sequence_length
        self._assembler = Assembler(mesh, config.batch_size, self._dataset.plan.lanes, rows=rows)
        self._loader: data.BatchLoader | None = None
        self._local: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        given: str | Mapping[str, Any],
        *,
        batch_size: int,
        sequence_length: int,
        seed: int,
        mesh: Mesh,
        rows: PartitionSpec,
        runtime: Runtime,
        directory: str | None,
    ) -> Self:
        """The lanes of a path, or of a mapping as the `data` block of a trainer has it."""
        block = {"path": given} if isinstance(given, str) else given
        config = BatchesConfig(
            data=parse(data.DataConfig, block, "data"),
            batch_size=batch_size,
            sequence_length=sequence_length,
            seed=seed,
        )
        return cls(config, mesh, rows, runtime, directory)

    def __next__(self) -> Batch:
        """The next batch; waits for storage where it is not read yet."""
        local = next(self._reading())
        self._local = local.state
        return Batch(*(self._assembler.array(getattr(local, name)) for name in Batch._fields))

    @property
    def described(self) -> Mapping[str, str | int]:
        """All that the batches depend on; compared when a run goes on."""
        return self._dataset.described

    def state(self) -> Position:
        """The position after the last batch taken, of all lanes. All processes call it alike."""
        loader = self._reading()
        return self._assembler.position(loader.state if self._local is None else self._local)

    def abstract_state(self) -> jax.ShapeDtypeStruct:
        """Shape and sharding of the position, int32 [lanes, columns]."""
        shape = data.state_shape(self._dataset.plan)
        return jax.ShapeDtypeStruct(shape, np.int32, sharding=NamedSharding(self.mesh, PartitionSpec()))

    def restore(self, position: jax.Array | np.ndarray) -> None:
        """Goes on after the batches of a position, int32 [lanes, columns].

        Raises:
            ConfigurationError: it is not one of this data.
        """
        self.close()
        self._start(np.asarray(position))

    def close(self) -> None:
        """Ends the threads that read ahead."""
        if self._loader is not None:
            self._loader.close()
        self._loader, self._local = None, None

    def _reading(self) -> data.BatchLoader:
        if self._loader is None:
            self._start(None)
        assert self._loader is not None
        return self._loader

    def _start(self, state: np.ndarray | None) -> None:
        self._loader = data.BatchLoader(
            self._dataset.manifest,
            self.tokenizer,
            self._dataset.plan,
            self._sequence_length,
            rows=self._assembler.rows,
            state=state,
        )
