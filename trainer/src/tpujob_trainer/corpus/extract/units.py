"""The units of a corpus, cut by rows so that they make whole batches and files, and their values."""

import dataclasses
import math

import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch
from tpujob_trainer.corpus.extract.programs import Outputs
from tpujob_trainer.corpus.extract.rows import Rows
from tpujob_trainer.corpus.extract.shards import scales_of
from tpujob_trainer.corpus.workers.results import add_statistics
from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.values.errors import ConfigurationError

UNIT_BYTES = (1 << 31) - 1
"""Unit size for the first division of a corpus, by row groups."""
BYTES_PER_ROW = 4096
"""Assumed size of a row in files whose rows are not counted before they are read."""
UNITS_PER_WORKER = 16
"""Units that each worker should get at least, so that the slowest ends soon after the others."""
LEAST_WORKERS = 16
"""Units are cut for at least this many workers: more may start later."""
UNCOUNTED = 1 << 32
"""Sample numbers of a unit in files whose rows are not counted before they are read."""


def rows_per_unit(
    *, row_bytes: int, shard_bytes: int, batch: int, filled: float = 1.0, total_rows: int | None, workers: int
) -> int:
    """Rows of a unit: as many as fill one file, or fewer, so that each worker gets several units; whole batches.

    Args:
        row_bytes: bytes that are written for a row of mean length.
        shard_bytes: of a file.
        batch: rows of full length in a batch.
        filled: mean length of a row / full length, above 0. Short rows fill a batch together, so a unit has more.
        total_rows: of the corpus; None if unknown.
        workers: their number at the start.
    """
    rows = max(1, shard_bytes // max(1, row_bytes), math.ceil(batch / filled))
    if total_rows is not None:
        rows = min(rows, -(-total_rows // (UNITS_PER_WORKER * max(workers, LEAST_WORKERS))))
    return max(1, rows // batch) * batch


def cut(manifest: Manifest, rows_per_unit: int, rows: int | None, *, field: str) -> Manifest:
    """The same files with units of at most `rows_per_unit` rows, and at most `rows` in all; `field` is for messages.

    Raises:
        ConfigurationError: `rows` is given, and rows are not counted before they are read.
    """
    if manifest.num_rows is None:
        if rows is not None:
            uncounted = {source.format for source in manifest.sources if format_named(source.format).elements != "rows"}
            raise ConfigurationError(
                f"{field}.rows: {rows}, but the rows of {', '.join(sorted(uncounted))} files are not counted before "
                "they are read; leave the key out, or give parquet or array records"
            )
        return manifest
    ends = np.cumsum(manifest.unit_count)
    left = manifest.unit_count if rows is None else np.clip(rows - (ends - manifest.unit_count), 0, manifest.unit_count)
    pieces = -(-left // rows_per_unit)
    which = np.repeat(np.arange(len(left)), pieces)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = piece * rows_per_unit
    count = np.minimum(rows_per_unit, left[which] - first)
    share = manifest.unit_bytes[which] * (count / manifest.unit_count[which])
    return dataclasses.replace(
        manifest,
        unit_file=manifest.unit_file[which],
        unit_part=manifest.unit_part[which],
        unit_first=manifest.unit_first[which] + first,
        unit_count=count,
        unit_bytes=share.astype(np.int64),
    )


def rows_problem(asked: int | None, *, made: int, corpus: int, field: str) -> str | None:
    """Why a job with this number of rows cannot continue with units that were cut before; None: it can.

    Args:
        asked: `rows` of the job; None: all.
        made: rows of the existing units.
        corpus: rows of the corpus.
        field: the task's block, for messages.
    """
    wanted = corpus if asked is None else min(asked, corpus)
    if wanted == made:
        return None
    all_or = f"{asked}" if asked is not None else f"all {corpus}"
    back = "leave it out" if made == corpus else f"put {made} back"
    return (
        f"{field}.rows: {all_or} in this job, {made} in the files that are there; {back}, or write into another "
        "spec.checkpointDir"
    )


def first_samples(manifest: Manifest) -> np.ndarray:
    """The number of the first sample of each unit in the corpus: int64 [units]."""
    if manifest.num_rows is None:
        return np.arange(manifest.num_units, dtype=np.int64) * UNCOUNTED
    ends = np.cumsum(manifest.unit_count)
    return np.asarray(ends - manifest.unit_count, dtype=np.int64)


class UnitValues:
    """The values that a program computed from a unit's rows."""

    def __init__(self, rows: Rows, per_token: frozenset[str]) -> None:
        """Starts without values; `per_token` are the columns with a vector for each token."""
        self.columns: dict[str, np.ndarray] = {}
        """`[vectors, D]`, scales `[vectors]`, in the order of the rows."""
        self.statistics: dict[str, list[float]] = {}
        """Sums over all values of a column, as in `STATISTICS`."""
        self._rows = rows
        self._per_token = per_token
        self._ends = np.cumsum(rows.lengths)

    def add(self, batch: Batch, outputs: Outputs) -> None:
        """Fetches the values of a batch from the devices, and stores them in the order of the unit's rows."""
        for column, kept in outputs.items():
            is_per_token = column in self._per_token
            self._place(column, batch, np.asarray(kept["values"]), is_per_token=is_per_token)
            if "scales" in kept:
                self._place(scales_of(column), batch, np.asarray(kept["scales"]), is_per_token=is_per_token)
            for sums in np.asarray(kept["sums"]).tolist() if "sums" in kept else ():
                if sums[0]:  # a device may have had only padding
                    self.statistics[column] = add_statistics(self.statistics.get(column), sums)

    def _place(self, column: str, batch: Batch, values: np.ndarray, *, is_per_token: bool) -> None:
        count = int(self._rows.lengths.sum()) if is_per_token else len(self._rows.lengths)
        if column not in self.columns:
            self.columns[column] = np.empty((count, *values.shape[2:]), values.dtype)
        into = self.columns[column]
        if not is_per_token:
            into[batch.rows] = values[batch.sequences, batch.slots]
            return
        places = zip(batch.rows.tolist(), batch.sequences.tolist(), batch.starts.tolist(), strict=True)
        for row, sequence, start in places:
            length = int(self._rows.lengths[row])
            into[self._ends[row] - length : self._ends[row]] = values[sequence, start : start + length]
