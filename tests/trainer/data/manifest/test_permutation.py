import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob_trainer.data.manifest.permutation import Permutation, row_order

KEYS = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 1000))


@settings(max_examples=60)
@given(size=st.integers(1, 700), key=KEYS)
def test_each_index_comes_once(size, key):
    order = Permutation(size, *key)

    assert sorted(order[index] for index in range(size)) == list(range(size))


@settings(max_examples=60)
@given(size=st.integers(1, 700), key=KEYS)
def test_many_at_once_are_the_same(size, key):
    order = Permutation(size, *key)

    assert order.take(np.arange(size)).tolist() == [order[index] for index in range(size)]


@settings(max_examples=60)
@given(size=st.integers(0, 700), key=KEYS)
def test_each_row_comes_once(size, key):
    assert sorted(row_order(size, *key).tolist()) == list(range(size))


@pytest.mark.parametrize("other", [(8, 0), (7, 1)], ids=["seed", "epoch"])
def test_another_key_is_another_order(other):
    one, two = Permutation(1000, 7, 0), Permutation(1000, *other)

    same = sum(one[index] == two[index] for index in range(1000))

    assert same < 10  # one place in a thousand is expected to agree by chance
    assert (row_order(1000, 7, 0) == row_order(1000, *other)).sum() < 10


def test_orders_never_change_between_versions():
    assert [Permutation(10, "units", 3, 0)[index] for index in range(10)] == [2, 0, 3, 1, 6, 9, 5, 8, 4, 7]
    assert row_order(10, "rows", 3, 0, 5).tolist() == [8, 9, 7, 1, 3, 4, 5, 0, 2, 6]


def test_large_orders_are_the_same_one_by_one():
    """Where all 64 bits of the arithmetic count."""
    size = 2**62 + 11
    order = Permutation(size, 5)
    places = np.array([0, 1, 12345, 2**61, 2**62 + 10])

    assert order.take(places).tolist() == [order[int(place)] for place in places]
    assert [order[0], order[1]] == [2821395753288338815, 2522816989622614846]


def test_neighbours_are_torn_apart():
    order = [Permutation(100_000, 1, 2)[index] for index in range(2000)]

    correlation = np.corrcoef(np.arange(2000), order)[0, 1]

    assert abs(correlation) < 0.1  # 4.5 standard deviations of 1/sqrt(2000)


def test_many_units_cost_no_memory():
    order = Permutation(2**40, 1)

    assert 0 <= order[2**40 - 1] < 2**40


@pytest.mark.parametrize("index", [-1, 5], ids=["negative", "the size"])
def test_index_outside_is_refused(index):
    with pytest.raises(IndexError, match="outside 0…4"):
        Permutation(5, 1)[index]


# Where the network is as large as the set, and one element more or less.
PINNED = {
    1: [0],
    2: [0, 1],
    3: [2, 1, 0],
    4: [2, 1, 3, 0],
    5: [1, 0, 2, 4, 3],
    15: [1, 7, 9, 6, 8, 4],
    16: [1, 7, 9, 6, 8, 4],
    17: [13, 14, 11, 7, 16, 5],
    63: [35, 60, 29, 7, 48, 45],
    64: [35, 60, 29, 7, 48, 45],
    65: [36, 56, 53, 10, 7, 20],
}


@pytest.mark.parametrize("size", PINNED)
def test_orders_near_powers_of_four_never_change(size):
    order = Permutation(size, "units", 1, 0)
    assert [order[index] for index in range(min(size, 6))] == PINNED[size]


def test_order_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one element, not 0"):
        Permutation(0, 1)
    assert Permutation(1, 1)[0] == 0
