"""Raw samples of webdataset tars, images included: the same ones whatever the number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_sdk.lanes import BatchesConfig
from tpujob_trainer import data
from tpujob_trainer.config_parsing import parse
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.data.stream.position import identity_of
from tpujob_trainer.data.stream.samples import SampleLoader
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.tasks.dataset import Dataset, training_data
from tpujob_trainer.train.batches import Assembler, Position

_FORMAT = "webdataset"


class Samples(Iterator[list[Sample]]):
    """Endless batches of samples, one for each row of this process; the state goes into the checkpoint.

    Nothing is decoded: what a field means is yours to know. `array` makes a global array of what you decoded.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        batch_size: int,
        seed: int,
        mesh: Mesh,
        rows: PartitionSpec,
        runtime: Runtime,
        directory: str | None,
    ) -> None:
        """Makes, or reads, the list of the tars; reads nothing else yet.

        Raises:
            ConfigurationError: there are no such tars, or they are not what the checkpoints were made from.
        """
        block = {"path": path if isinstance(path, str) else list(path), "tokenizer": "bytes"}
        config = parse(data.DataConfig, block, "data")
        self.mesh = mesh
        self._dataset: Dataset = training_data(
            # No row is cut into tokens: that is what a length of 0 stands for.
            BatchesConfig(data=config, batch_size=batch_size, sequence_length=0, seed=seed),
            data.load_tokenizer(config),
            directory=directory,
            runtime=runtime,
        )
        (found,) = {source.format for source in self._dataset.manifest.sources}
        if found != _FORMAT:
            raise ConfigurationError(
                f"data.path: {path} holds files of format {found}; samples are read from webdataset tars (.tar, "
                ".tar.gz, .tgz), text by job.lanes"
            )
        self._assembler = Assembler(mesh, batch_size, self._dataset.plan.lanes, rows=rows)
        self._loader: SampleLoader | None = None

    @property
    def rows(self) -> np.ndarray:
        """Rows of the global batch that this process holds, ascending, int32."""
        return self._assembler.rows

    def __next__(self) -> list[Sample]:
        """The samples of the next batch, one for each of `rows`; waits for storage where they are not read yet."""
        return next(self._reading())

    def array(self, local: np.ndarray) -> jax.Array:
        """The global array [batch, ...] of which `local` [rows, ...] is this process's part, in the order of `rows`."""
        return self._assembler.array(local)

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
        self._start(np.asarray(position))

    def close(self) -> None:
        """Ends the threads that read ahead."""
        if self._loader is not None:
            self._loader.close()
        self._loader = None

    def _reading(self) -> SampleLoader:
        if self._loader is None:
            self._start(None)
        assert self._loader is not None
        return self._loader

    def _start(self, state: np.ndarray | None) -> None:
        self._loader = SampleLoader(
            self._dataset.manifest,
            self._dataset.plan,
            identity_of(self._dataset.described),
            rows=self._assembler.rows,
            state=state,
        )
