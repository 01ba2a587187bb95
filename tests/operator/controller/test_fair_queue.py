"""Which key runs next, and that no namespace delays another beyond its share."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob_operator.controller.fair_queue import FairQueue


def queue(*, places: int = 1, share: int = 1) -> FairQueue[str]:
    return FairQueue(group=lambda key: key[0], places=places, share=share)


# What happens: a key is put; as many are taken as there are places; one that was taken ends after some seconds. Then
# the places and the share of a group, and what is taken in which order.
ORDERS: dict[str, tuple[str, int, int, str]] = {
    "first come first served within a group": ("a1 a2 a3", 3, 3, "a1 a2 a3"),
    "groups take turns": ("a1 a2 a3 a4 b1 b2 c1", 9, 9, "a1 b1 c1 a2 b2 a3 a4"),
    "no more than there are places": ("a1 b1 c1", 2, 2, "a1 b1"),
    "no more of a group than its share": ("a1 a2 a3 b1", 4, 2, "a1 b1 a2"),
    "one group does not have all": ("a1 a2 a3 a4", 4, 2, "a1 a2"),
    "what waits keeps its place": ("a1 a2 a1 a1", 4, 4, "a1 a2"),
    "a key that runs waits, and is passed": ("a1 take a1 a2", 3, 3, "a1 a2"),
    "and runs again": ("a1 take a1 a2 take a1=1", 3, 3, "a1 a2 a1"),
    "the group with fewest places": ("a1 b1 take a2 b2 a1=9", 2, 2, "a1 b1 a2"),
    "the group that was served least": ("a1 a2 b1 b2 b3 take a1=9 take b1=1 take b2=1", 1, 1, "a1 b1 b2 b3"),
    "the group that seldom has work": ("a1 a2 a3 take a1=1 take b1 a2=1 take", 1, 1, "a1 a2 b1"),
    "idle time is not saved up": (
        "a1 a2 a3 a4 take a1=9 take b1 b2 b3 a2=9 take b1=1 take b2=9",
        1,
        1,
        "a1 a2 b1 b2 a3",
    ),
    "idle time of all is forgotten": ("a1 take a1=9 b1 b2 a2 take b1=1", 1, 1, "a1 b1 a2"),
}


@pytest.mark.parametrize(("happens", "places", "share", "taken"), ORDERS.values(), ids=ORDERS)
def test_order(happens: str, places: int, share: int, taken: str) -> None:
    fair, found, put = queue(places=places, share=share), list[str](), Counter[str]()
    for each in (*happens.split(), "take"):
        key, _, seconds = each.partition("=")
        if each == "take":
            while (next_one := fair.take()) is not None:
                found.append(next_one[0])
        elif seconds:
            fair.done(key, float(seconds))
        elif key not in fair:
            put[key] += 1
            fair.put(key, 0.0)
        else:
            fair.put(key, 1.0)
    assert found == taken.split()
    assert len(fair) == put.total() - len(found)


def test_time_since_it_waits_is_that_of_the_first_request() -> None:
    fair = queue()
    fair.put("a1", 3.0)
    fair.put("a1", 5.0)
    assert fair.take() == ("a1", 3.0)


RUNS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=60)


@given(runs=RUNS, places=st.integers(2, 6), waiting=st.integers(1, 30))
def test_first_job_of_a_namespace_waits_for_one_run_of_each_other_at_most(
    runs: list[tuple[str, int]], places: int, waiting: int
) -> None:
    """However many jobs wait in four namespaces, and however long each runs; which of them ends next is drawn."""
    fair, running, served = queue(places=places, share=places - 1), list[str](), Counter[str]()
    for key in (f"{group}{number}" for group in "abcd" for number in range(waiting)):
        fair.put(key, 0.0)
    for step, (group, seconds) in enumerate(runs):
        if step == len(runs) // 2:
            fair.put("z0", 0.0)
            served.clear()
        while (taken := fair.take()) is not None:
            running.append(taken[0])
            served[taken[0][0]] += 1
            held = Counter(key[0] for key in running)
            assert max(held.values()) < places
            if "z0" in fair:
                assert max(served.values()) == 1
        assert len(running) == min(places, len(running) + len(fair))  # no place is free while a job waits
        ended = next((key for key in running if key[0] == group), running[0])
        running.remove(ended)
        fair.done(ended, float(seconds))
        if ended != "z0":
            fair.put(ended, 0.0)  # there is always more


@given(durations=st.lists(st.integers(1, 9), min_size=200, max_size=200), places=st.integers(1, 6))
def test_namespaces_that_always_have_work_get_the_same_time(durations: list[int], places: int) -> None:
    """One of many jobs and one of few, one of long runs and one of short ones."""
    fair, now, ends, used = queue(places=places, share=places), 0, list[tuple[int, str, int]](), Counter[str]()
    for key in ("a1", "b1", "b2", "b3", "b4", "b5", "b6"):
        fair.put(key, 0.0)
    for duration in durations:
        while (taken := fair.take()) is not None:
            ends.append((now + duration * (3 if taken[0][0] == "a" else 1), taken[0], now))
        ends.sort()
        now, key, began = ends.pop(0)
        used[key[0]] += now - began
        fair.done(key, float(now - began))
        fair.put(key, float(now))
    if places == 1:
        assert abs(used["a"] - used["b"]) <= 27 + 9
    else:
        assert used["a"] >= now - 27  # its one job is never without a place
