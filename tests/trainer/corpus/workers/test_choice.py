import functools

import numpy as np
import pytest

from tpujob_trainer.corpus.workers.states import DONE, FREE, TAKEN, free_stretches, next_unit

_STATES = {".": FREE, "t": TAKEN, "d": DONE}


def _states(text):
    return np.array([_STATES[letter] for letter in text], dtype=np.uint8)


@pytest.mark.parametrize(
    ("states", "after", "chance", "unit"),
    [
        pytest.param("....", None, 0.0, 0, id="starts at a random place: the first"),
        pytest.param("....", None, 0.99, 3, id="starts at a random place: the last"),
        pytest.param("d...", 0, 0.99, 1, id="goes on with the next one"),
        pytest.param("dt..", 0, 0.0, 2, id="moves where somebody has been"),
        pytest.param("...d.", 3, 0.0, 4, id="goes on with the last one"),
        pytest.param("...d", 3, 0.0, 0, id="begins again behind the end"),
        pytest.param("dttd", 0, 0.5, None, id="nothing is free"),
        pytest.param("", None, 0.5, None, id="no units"),
        pytest.param("d.d....d..", 0, 0.0, 1, id="the next one, though its stretch is short"),
        pytest.param("dd.d....d..", 0, 0.0, 4, id="the longest stretch first"),
    ],
)
def test_which_unit_is_next(states, after, chance, unit):
    assert next_unit(_states(states), after, lambda: chance) == unit


def test_stretches_are_maximal():
    first, length = free_stretches(_states("..d.tt...d"))
    assert (first.tolist(), length.tolist()) == ([0, 3, 6], [2, 1, 3])


def test_every_free_unit_can_be_chosen():
    states = _states(".d..t...")
    chances = np.linspace(0, 0.999, 20)
    chosen = set()
    for which in chances:
        for where in chances:
            numbers = iter([which, where])
            chosen.add(next_unit(states, None, functools.partial(next, numbers)))
    assert chosen == {0, 2, 3, 5, 6, 7}
