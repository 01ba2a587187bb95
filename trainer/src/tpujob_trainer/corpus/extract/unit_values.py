"""The values of a unit, gathered from its batches into the order of its rows."""

from __future__ import annotations

import numpy as np

from tpujob_trainer.corpus.extract.batches import Batch
from tpujob_trainer.corpus.extract.program import Outputs
from tpujob_trainer.corpus.extract.rows import Rows
from tpujob_trainer.corpus.extract.shards import scales_of
from tpujob_trainer.corpus.workers.statistics import add_statistics


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
