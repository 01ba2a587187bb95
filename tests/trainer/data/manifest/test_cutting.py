"""Where parts of files are cut into units."""

import numpy as np
import pytest

from tpujob_trainer.data.manifest.permutation import cut_units

CUT = {
    # name: ([elements, bytes] of each part, limits, [part, first element, elements, bytes] of each unit)
    "whole": ([(10, 100)], {"unit_bytes": 100}, [(0, 0, 10, 100)]),
    "one byte too large": ([(10, 101)], {"unit_bytes": 100}, [(0, 0, 5, 50), (0, 5, 5, 50)]),
    "as even as can be": (
        [(10, 100)],
        {"unit_bytes": 30},
        [(0, 0, 2, 20), (0, 2, 3, 30), (0, 5, 2, 20), (0, 7, 3, 30)],
    ),
    "elements are not divided": ([(2, 100)], {"unit_bytes": 10}, [(0, 0, 1, 50), (0, 1, 1, 50)]),
    "a least number of elements": ([(10, 100)], {"unit_bytes": 10, "least": 4}, [(0, 0, 5, 50), (0, 5, 5, 50)]),
    "fewer elements than that": ([(3, 90)], {"unit_bytes": 10, "least": 4}, [(0, 0, 3, 90)]),
    "empty parts have none": ([(0, 0), (4, 4)], {"unit_bytes": 10}, [(1, 0, 4, 4)]),
    "nothing": ([(0, 0)], {"unit_bytes": 10, "minimum": 3}, []),
    "a least number of units": (
        [(10, 10), (30, 30)],
        {"unit_bytes": 1000, "minimum": 4},
        [(0, 0, 10, 10), (1, 0, 10, 10), (1, 10, 10, 10), (1, 20, 10, 10)],
    ),
    "a least number of units, one more": (
        [(10, 10), (30, 30)],
        {"unit_bytes": 1000, "minimum": 5},
        [(0, 0, 5, 5), (0, 5, 5, 5), (1, 0, 7, 7), (1, 7, 8, 8), (1, 15, 7, 7), (1, 22, 8, 8)],
    ),
    "as many units as elements": (
        [(2, 2), (1, 1)],
        {"unit_bytes": 1000, "minimum": 9},
        [(0, 0, 1, 1), (0, 1, 1, 1), (1, 0, 1, 1)],
    ),
    "a least number of both": (
        [(10, 10)],
        {"unit_bytes": 1000, "minimum": 9, "least": 5},
        [(0, 0, 5, 5), (0, 5, 5, 5)],
    ),
    "enough units already": (
        [(4, 40), (9, 9)],
        {"unit_bytes": 10, "minimum": 5},
        [(0, 0, 1, 10), (0, 1, 1, 10), (0, 2, 1, 10), (0, 3, 1, 10), (1, 0, 9, 9)],
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_parts_are_cut_evenly(name):
    groups, limits, expected = CUT[name]
    count, size = (np.array(column, dtype=np.int64) for column in zip(*groups, strict=True))
    part = np.arange(len(groups))
    file, found, *rest = cut_units(part + 5, part, count, size, **{"minimum": 1, **limits})
    assert [tuple(map(int, unit)) for unit in zip(found, *rest, strict=True)] == expected
    assert file.tolist() == [part + 5 for part, *_ in expected]
