"""Raw samples of webdataset tars, including images, which do not depend on the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_sdk.batches import Batches, BatchesConfig
from tpujob_sdk.decoding import Decoding, require_importable
from tpujob_trainer import data
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.data.stream.position import identity_of
from tpujob_trainer.data.stream.samples import SampleLoader
from tpujob_trainer.session.session import Session
from tpujob_trainer.storage.versions import named
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import parse

_FORMAT = "webdataset"


class Samples[T](Batches[list[T], SampleLoader | Decoding[T]]):
    """An endless iterator of batches of samples, one for each row of this process; its state is in the checkpoint.

    Samples are not decoded: their fields are raw bytes. `map` decodes them with your function in worker processes;
    `array` makes a global array of the decoded values.
    """

    given_as = "job.samples: "

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        batch_size: int,
        seed: int,
        mesh: Mesh,
        rows: PartitionSpec,
        session: Session,
    ) -> None:
        """Makes the list of the tars, or reads the stored one; reads no samples yet.

        Raises:
            ConfigurationError: there are no such tars, or they differ from those of the checkpoints.
        """
        block = {"path": path if isinstance(path, str) else list(path), "tokenizer": "bytes"}
        # Samples are not tokenized: a length of 0 stands for that.
        config = BatchesConfig(
            data=parse(data.DataConfig, block, "data"), batch_size=batch_size, sequence_length=0, seed=seed
        )
        super().__init__(config, mesh, rows, session)
        self._decode: tuple[Callable[[Sample], Any], int] | None = None
        (found,) = {source.format for source in self._dataset.manifest.sources}
        if found != _FORMAT:
            raise ConfigurationError(
                f"job.samples: path: {path} holds files of format {found}; samples are read from webdataset tars "
                f"({', '.join(FILE_ENDINGS[_FORMAT])}), text by job.lanes"
            )

    @property
    def rows(self) -> np.ndarray:
        """The rows of the global batch that this process holds, ascending, int32."""
        return self._assembler.rows

    def map[U](self, function: Callable[[Sample], U], *, workers: int) -> Samples[U]:
        """The same samples, decoded by a function in processes of this host ahead of the loop.

        The position is that of the batches taken: a restart, also on another number of hosts, loses and repeats none.

        Args:
            function: Decodes one sample; defined at the top of a module, so that other processes can import it. It must
                not use JAX.
            workers: Number of processes on this host; a few for each core that the training leaves free.

        Raises:
            ConfigurationError: the function cannot be sent to other processes, or batches were taken already.
        """
        require_importable(function)
        if workers < 1:
            raise ConfigurationError(f"samples.map: workers: {workers} is less than 1")
        if self._loader is not None or self._decode is not None:
            raise ConfigurationError("samples.map: call it once, before the first batch is taken")
        self._decode = (function, workers)
        return cast("Samples[U]", self)

    def __next__(self) -> list[T]:
        """The samples of the next batch, one for each of `rows`; waits for storage if they are not read yet."""
        self.on_batch()
        with named(self.given_as):
            return cast("list[T]", next(self._reading()))

    def array(self, local: np.ndarray) -> jax.Array:
        """The global array [batch, ...] of which `local` [rows, ...] is this process's part, in the order of `rows`."""
        return self._assembler.array(local)

    def _load(self, state: np.ndarray | None) -> SampleLoader | Decoding[T]:
        loader = SampleLoader(
            self._dataset.manifest,
            self._dataset.plan,
            identity_of(self._dataset.described),
            rows=self._assembler.rows,
            state=state,
        )
        if self._decode is None:
            return loader
        function, workers = self._decode
        return Decoding(loader, function, workers=workers)
