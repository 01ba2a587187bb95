"""What lanes and samples have in common: a position over all lanes that goes into the checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer import data
from tpujob_trainer.session.dataset import Dataset, training_data
from tpujob_trainer.session.session import Session
from tpujob_trainer.train.batches import Assembler, Position


@dataclass(frozen=True, kw_only=True)
class BatchesConfig:
    """What batches depend on."""

    data: data.DataConfig
    batch_size: int
    sequence_length: int
    seed: int


class Loader(Protocol):
    """Reads ahead in threads of its own."""

    @property
    def state(self) -> np.ndarray:
        """The position after the last batch taken, of this process's lanes."""

    def close(self) -> None:
        """Ends the threads."""


class Batches[B, L: Loader](Iterator[B], ABC):
    """Endless batches B, each read by a loader L of the processes whose devices hold its rows."""

    def __init__(self, config: BatchesConfig, mesh: Mesh, rows: PartitionSpec, session: Session) -> None:
        """Makes, or reads, the list of what there is to read; reads nothing else yet.

        Raises:
            ConfigurationError: there is no such data, or it is not what the checkpoints were made from.
        """
        self.mesh = mesh
        self.tokenizer = data.load_tokenizer(config.data)
        self._dataset: Dataset = training_data(config, self.tokenizer, session)
        self._assembler = Assembler(mesh, config.batch_size, self._dataset.plan.lanes, rows=rows)
        self._loader: L | None = None
        self.on_batch: Callable[[], None] = lambda: None
        """Called before a batch is taken."""

    @property
    def described(self) -> Mapping[str, str | int]:
        """All that the batches depend on; compared when a run goes on."""
        return self._dataset.described

    def state(self) -> Position:
        """The position after the last batch taken, of all lanes. All processes call it alike."""
        return self._assembler.position(self._reading().state)

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
        self._loader = self._load(np.asarray(position))

    def close(self) -> None:
        """Ends the threads that read ahead."""
        if self._loader is not None:
            self._loader.close()
        self._loader = None

    def _reading(self) -> L:
        if self._loader is None:
            self._loader = self._load(None)
        return self._loader

    @abstractmethod
    def _load(self, state: np.ndarray | None) -> L:
        """Starts to read at a position of all lanes, at the beginning for None."""
