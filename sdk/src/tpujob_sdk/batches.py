"""The base class of lanes and samples: batches with a position over all lanes that is stored in the checkpoint."""

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
from tpujob_trainer.storage.versions import named
from tpujob_trainer.train.batches import Assembler, Position


@dataclass(frozen=True, kw_only=True)
class BatchesConfig:
    """The inputs that determine the batches."""

    data: data.DataConfig
    batch_size: int
    sequence_length: int
    seed: int


class Loader(Protocol):
    """Reads ahead in its own threads."""

    @property
    def state(self) -> np.ndarray:
        """The position of this process's lanes after the last batch taken."""

    def close(self) -> None:
        """Ends the threads."""


class Batches[B, L: Loader](Iterator[B], ABC):
    """An endless iterator of batches B; a loader L reads the rows that this process's devices hold."""

    given_as = "job.lanes: data."
    """Where the fields of the data are in the call, for messages."""

    def __init__(self, config: BatchesConfig, mesh: Mesh, rows: PartitionSpec, session: Session) -> None:
        """Makes the list of the data, or reads the stored one; reads no data yet.

        Raises:
            ConfigurationError: there is no such data, or it differs from that of the checkpoints.
        """
        self.mesh = mesh
        with named(self.given_as):
            self.tokenizer = data.load_tokenizer(config.data)
            self._dataset: Dataset = training_data(config, self.tokenizer, session)
        self._assembler = Assembler(mesh, config.batch_size, self._dataset.plan.lanes, rows=rows)
        self._loader: L | None = None
        self.on_batch: Callable[[], None] = lambda: None
        """Called before a batch is taken."""

    @property
    def described(self) -> Mapping[str, str | int]:
        """Everything that determines the batches; compared when a run is resumed."""
        return self._dataset.described

    def state(self) -> Position:
        """The position of all lanes after the last batch taken. All processes must call this."""
        return self._assembler.position(self._reading().state)

    def abstract_state(self) -> jax.ShapeDtypeStruct:
        """Shape and sharding of the position, int32 [lanes, columns]."""
        shape = data.state_shape(self._dataset.plan)
        return jax.ShapeDtypeStruct(shape, np.int32, sharding=NamedSharding(self.mesh, PartitionSpec()))

    def restore(self, position: jax.Array | np.ndarray) -> None:
        """Continues after the batches of a position, int32 [lanes, columns].

        Raises:
            ConfigurationError: the position is not of this data.
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
        """Starts to read at a position of all lanes; None: at the beginning."""
