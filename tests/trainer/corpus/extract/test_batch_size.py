"""The batch size where none is given: from what two small programs need."""

import pytest

from tpujob_trainer.corpus.extract.batch_size import largest_rows

GB = 10**9


@pytest.mark.parametrize(
    ("measured", "limit", "at_most", "rows"),
    [
        pytest.param({1: 2 * GB, 2: 3 * GB}, 16 * GB, 1024, 8, id="a power of two below what fits"),
        pytest.param({1: 2 * GB, 2: 3 * GB}, 17 * GB, 1024, 16, id="exactly what fits"),
        pytest.param({1: 2 * GB, 2: 3 * GB}, 2 * GB, 1024, 1, id="one row fits"),
        pytest.param({1: 2 * GB, 2: 3 * GB}, 100 * GB, 32, 32, id="no more than pays"),
        pytest.param({1: 2 * GB, 2: 3 * GB}, 100 * GB, 0, 1, id="rows longer than what pays"),
        pytest.param({1: 2 * GB, 2: 2 * GB}, 16 * GB, 64, 64, id="rows that cost nothing"),
        pytest.param({1: 2 * GB, 2: 1 * GB}, 16 * GB, 64, 64, id="a compiler that needs less for more"),
        pytest.param({2: 3 * GB, 1: 2 * GB}, 16 * GB, 1024, 8, id="in any order"),
        pytest.param({2: 4 * GB, 4: 6 * GB}, 16 * GB, 1024, 8, id="not from one row"),
    ],
)
def test_rows_that_fit(measured, limit, at_most, rows):
    assert largest_rows(measured, limit, at_most=at_most) == rows


def test_nothing_fits_is_said_with_both_sizes():
    with pytest.raises(ValueError, match=r"one row needs 2\.00 GB on a device, and 1\.50 GB are free"):
        largest_rows({1: 2 * GB, 2: 3 * GB}, 1_500_000_000, at_most=64)
