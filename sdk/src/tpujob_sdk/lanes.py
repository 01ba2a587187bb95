"""Global batches of tokens, which do not depend on the number of processes."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tpujob_sdk.batches import Batches, BatchesConfig
from tpujob_trainer import data
from tpujob_trainer.session.session import Session
from tpujob_trainer.storage.versions import named
from tpujob_trainer.values.from_mapping import parse


class Batch(NamedTuple):
    """A global batch as arrays over all devices, B rows of S tokens. A pytree."""

    inputs: jax.Array
    """int32 [B, S]"""
    targets: jax.Array
    """int32 [B, S]: the token after each input."""
    loss_mask: jax.Array
    """bool [B, S]: False if the target begins another document, or is not learned."""
    segment_ids: jax.Array
    """int32 [B, S], from 1: positions with different ids belong to different documents."""
    positions: jax.Array
    """int32 [B, S], from 0 at the beginning of each segment."""


class Lanes(Batches[Batch, data.BatchLoader]):
    """An endless iterator of token batches; its state is stored in the checkpoint."""

    def __init__(self, config: BatchesConfig, mesh: Mesh, rows: PartitionSpec, session: Session) -> None:
        super().__init__(config, mesh, rows, session)
        self._sequence_length = config.sequence_length
        self._prefetch = config.data.prefetch_batches

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
        session: Session,
    ) -> Self:
        """The lanes of a path, or of a mapping with the fields of the trainer's `data` block."""
        block = {"path": given} if isinstance(given, str) else given
        config = BatchesConfig(
            data=parse(data.DataConfig, block, "data"),
            batch_size=batch_size,
            sequence_length=sequence_length,
            seed=seed,
        )
        return cls(config, mesh, rows, session)

    def __next__(self) -> Batch:
        """The next batch; waits for storage if it is not read yet."""
        self.on_batch()
        with named(self.given_as):
            local = next(self._reading())
        return Batch(*(self._assembler.array(getattr(local, name)) for name in Batch._fields))

    def _load(self, state: np.ndarray | None) -> data.BatchLoader:
        return data.BatchLoader(
            self._dataset.manifest,
            self.tokenizer,
            self._dataset.plan,
            self._sequence_length,
            rows=self._assembler.rows,
            state=state,
            prefetch=self._prefetch,
        )
