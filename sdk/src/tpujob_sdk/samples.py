"""Raw samples of webdataset tars, images included: the same ones whatever the number of processes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tpujob_contract.file_endings import FILE_ENDINGS
from tpujob_sdk.batches import Batches, BatchesConfig
from tpujob_trainer import data
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.data.stream.position import identity_of
from tpujob_trainer.data.stream.samples import SampleLoader
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.parsing.from_mapping import parse
from tpujob_trainer.session.session import Session

_FORMAT = "webdataset"


class Samples(Batches[list[Sample], SampleLoader]):
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
        session: Session,
    ) -> None:
        """Makes, or reads, the list of the tars; reads nothing else yet.

        Raises:
            ConfigurationError: there are no such tars, or they are not what the checkpoints were made from.
        """
        block = {"path": path if isinstance(path, str) else list(path), "tokenizer": "bytes"}
        # No row is cut into tokens: that is what a length of 0 stands for.
        config = BatchesConfig(
            data=parse(data.DataConfig, block, "data"), batch_size=batch_size, sequence_length=0, seed=seed
        )
        super().__init__(config, mesh, rows, session)
        (found,) = {source.format for source in self._dataset.manifest.sources}
        if found != _FORMAT:
            raise ConfigurationError(
                f"data.path: {path} holds files of format {found}; samples are read from webdataset tars "
                f"({', '.join(FILE_ENDINGS[_FORMAT])}), text by job.lanes"
            )

    @property
    def rows(self) -> np.ndarray:
        """Rows of the global batch that this process holds, ascending, int32."""
        return self._assembler.rows

    def __next__(self) -> list[Sample]:
        """The samples of the next batch, one for each of `rows`; waits for storage where they are not read yet."""
        self.on_batch()
        return next(self._reading())

    def array(self, local: np.ndarray) -> jax.Array:
        """The global array [batch, ...] of which `local` [rows, ...] is this process's part, in the order of `rows`."""
        return self._assembler.array(local)

    def _load(self, state: np.ndarray | None) -> SampleLoader:
        return SampleLoader(
            self._dataset.manifest,
            self._dataset.plan,
            identity_of(self._dataset.described),
            rows=self._assembler.rows,
            state=state,
        )
