"""Which key runs next, and that no namespace delays another beyond its turn."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob_operator.controller.fair_queue import FairQueue


def queue(*, places: int = 1, share: int = 1) -> FairQueue[str]:
    return FairQueue(group=lambda key: key[0], places=places, share=share)


# What is put, where + after a key stands for its end; and what is taken then, as long as there is a place.
ORDERS: dict[str, tuple[str, int, int, str]] = {
    "first come first served within a group": ("a1 a2 a3", 3, 3, "a1 a2 a3"),
    "groups take turns": ("a1 a2 a3 a4 b1 b2 c1", 9, 9, "a1 b1 c1 a2 b2 a3 a4"),
    "no more than there are places": ("a1 b1 c1", 2, 2, "a1 b1"),
    "no more of a group than its share": ("a1 a2 a3 b1", 4, 2, "a1 b1 a2"),
    "one group does not have all": ("a1 a2 a3 a4", 4, 2, "a1 a2"),
    "what waits keeps its place": ("a1 a2 a1 a1", 4, 4, "a1 a2"),
}


@pytest.mark.parametrize(("put", "places", "share", "taken"), ORDERS.values(), ids=ORDERS)
def test_order(put: str, places: int, share: int, taken: str) -> None:
    fair = queue(places=places, share=share)
    for key in put.split():
        fair.put(key, 0.0)
    found = []
    while (next_one := fair.take()) is not None:
        found.append(next_one[0])
    assert found == taken.split()
    assert len(fair) == len(set(put.split())) - len(found)


def test_key_that_runs_waits_and_is_passed() -> None:
    fair = queue(places=3, share=3)
    fair.put("a1", 1.0)
    assert fair.take() == ("a1", 1.0)
    for key in ("a1", "a2"):
        fair.put(key, 2.0)
    assert "a1" in fair
    assert fair.take() == ("a2", 2.0)
    assert fair.take() is None
    fair.done("a1")
    assert fair.take() == ("a1", 2.0)


def test_group_at_its_share_keeps_its_turn() -> None:
    fair = queue(places=3, share=1)
    for key in ("a1", "a2", "b1", "b2", "c1"):
        fair.put(key, 0.0)
    assert [fair.take() for _ in range(4)] == [("a1", 0.0), ("b1", 0.0), ("c1", 0.0), None]
    fair.done("c1")
    fair.put("c2", 0.0)
    assert fair.take() == ("c2", 0.0)
    fair.done("a1")
    assert fair.take() == ("a2", 0.0)


STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "done"]), st.sampled_from("abc"), st.integers(0, 5)))


@given(steps=STEPS, burst=st.integers(0, 40), places=st.integers(2, 6))
def test_namespace_delays_a_job_of_another_by_one_run(
    steps: list[tuple[str, str, int]], burst: int, places: int
) -> None:
    """However many jobs wait in `a`, and whatever happens meanwhile, the next job of `b` is behind one of them."""
    share = places - 1
    fair, running, served = queue(places=places, share=share), list[str](), Counter[str]()
    for number in range(burst):
        fair.put(f"a{number}", 0.0)
    waits: dict[str, Counter[str]] = {}
    for what, group, number in steps:
        if what == "put":
            fair.put(f"{group}{number}", 0.0)
        elif running:
            fair.done(running.pop(number % len(running)))
        while (taken := fair.take()) is not None:
            key = taken[0]
            assert key not in running
            running.append(key)
            served[key[0]] += 1
            waits.pop(key[0], None)
            for other in waits:
                waits[other][key[0]] += 1
                assert waits[other][key[0]] <= 1
        held = Counter(key[0] for key in running)
        assert sum(held.values()) <= places
        assert max(held.values(), default=0) <= share
        for each in "abc":
            may_run = held[each] < share and any(
                f"{each}{n}" in fair and f"{each}{n}" not in running for n in range(40)
            )
            if not may_run:
                waits.pop(each, None)
            elif each not in waits:
                waits[each] = Counter()
                assert len(running) == places  # nothing that may run waits while there is a place
