"""When the data of a run is at its end, by the positions of its lanes."""

import dataclasses

import numpy as np
import pytest

from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream.position import STATE_COLUMNS, has_ended

PLAN = LanePlan(7, 4, 2, 0, 2)


def state(*epochs: int) -> np.ndarray:
    found = np.zeros((len(epochs), len(STATE_COLUMNS)), np.int32)
    found[:, STATE_COLUMNS.index("epoch")] = epochs
    return found


@pytest.mark.parametrize(
    ("epochs", "ended"),
    [((0, 0), False), ((2, 1), False), ((1, 2), False), ((2, 2), True), ((3, 2), True)],
    ids=["start", "first lane done", "second lane done", "all done", "one went on"],
)
def test_data_ends_with_its_longest_lane(epochs: tuple[int, ...], ended: bool) -> None:
    assert has_ended(state(*epochs), PLAN) is ended


def test_endless_data_never_ends() -> None:
    assert not has_ended(state(9, 9), dataclasses.replace(PLAN, epochs=None))
