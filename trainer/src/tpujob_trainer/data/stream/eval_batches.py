"""Evaluation batches: a fixed number, the same ones each time and for any number of processes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.plan import plan_lanes
from tpujob_trainer.data.stream.loader import BatchLoader, LocalBatch
from tpujob_trainer.data.text.tokenizer import Tokenizer


@contextlib.contextmanager
def evaluation_batches(
    manifest: Manifest,
    tokenizer: Tokenizer,
    config: DataConfig,
    *,
    batch_size: int,
    sequence_length: int,
    rows: Sequence[int] | np.ndarray,
    batches: int,
) -> Iterator[Iterator[LocalBatch]]:
    """Yields an iterator over `batches` batches from the beginning of the data, all of one shape.

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
    with BatchLoader(manifest, tokenizer, plan, sequence_length, rows=rows) as loader:
        yield itertools.islice(loader, batches)
