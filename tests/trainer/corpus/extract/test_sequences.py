"""Rows of a unit in the sequences of a batch."""

import numpy as np

from tpujob_trainer.corpus.extract.batches import plan_packed
from tpujob_trainer.corpus.extract.rows import Rows
from tpujob_trainer.corpus.extract.sequences import filled


def test_rows_are_where_the_plan_has_them():
    lengths = np.array([20, 30, 10], dtype=np.int64)
    unit = Rows(0, np.arange(3, dtype=np.int32), np.arange(60, dtype=np.int32), lengths, {})
    (batch,) = plan_packed(lengths, (32,), (2, 4))
    # The longest row has a sequence; the two others fill one together.
    found = filled(unit, batch, np.array([100, 101, (1 << 31) + 5]), most_rows=2)
    assert found.starts.tolist() == [[0, 32], [0, 20]]
    assert found.lengths.tolist() == [[30, 0], [20, 10]]
    assert found.samples.tolist() == [[101, 0], [100, 5]]
    assert found.tokens.tolist() == [[*range(20, 50), 0, 0], [*range(20), *range(50, 60), 0, 0]]
    assert found.segments.tolist() == [[0] * 32, [0] * 20 + [1] * 12]
    assert found.positions.tolist()[1] == [*range(20), *range(12)]
    assert (found.left > 0).sum(axis=1).tolist() == [30, 30]
