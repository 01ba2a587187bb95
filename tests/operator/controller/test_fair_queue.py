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
    "the group with fewest keys": ("a1 a2 a3 a4 b1 b2 c1", 3, 3, "c1 b1 b2"),
    "every fourth time that with fewest places": ("a1 a2 a3 a4 b1 b2 c1", 9, 9, "c1 b1 b2 a1 a2 a3 a4"),
    "also if there are always some with fewer keys": (
        "a1 a2 b1 take b1=1 b2 take b2=1 b3 take b3=1 b4 take a1=1",
        1,
        1,
        "b1 b2 b3 a1 a2",
    ),
    "no more than there are places": ("a1 b1 c1", 2, 2, "a1 b1"),
    "no more of a group than its share": ("a1 a2 a3 b1", 4, 2, "b1 a1 a2"),
    "one group does not have all": ("a1 a2 a3 a4", 4, 2, "a1 a2"),
    "what waits keeps its place": ("a1 a2 a1 a1", 4, 4, "a1 a2"),
    "a key that runs waits, and is passed": ("a1 take a1 a2", 3, 3, "a1 a2"),
    "and runs again": ("a1 take a1 a2 take a1=1", 3, 3, "a1 a2 a1"),
    "what runs counts": ("a1 b1 take a2 b2 b1=9", 2, 2, "a1 b1 b2"),
    "of equal groups that which waits longest": ("a1 b1 take a1=9 a2 take b1=1 b2 take", 1, 1, "a1 b1 a2"),
    "idle time is not saved up": ("a1 a2 take a1=9 take b1 a2=1 a3 take b1=5 b2 take", 1, 1, "a1 a2 b1 a3"),
    "idle time of all is forgotten": ("a1 take a1=9 b1 a2 take b1=5 b2 take a2=1 a3 take", 1, 1, "a1 b1 a2 a3"),
}


@pytest.mark.parametrize(("happens", "places", "share", "taken"), ORDERS.values(), ids=ORDERS)
def test_order(happens: str, places: int, share: int, taken: str) -> None:
    fair, found, put = queue(places=places, share=share), list[str](), Counter[str]()
    for now, each in enumerate((*happens.split(), "take")):
        key, _, seconds = each.partition("=")
        if each == "take":
            while (next_one := fair.take()) is not None:
                found.append(next_one[0])
        elif seconds:
            fair.done(key, float(seconds))
        else:
            put[key] += key not in fair
            fair.put(key, float(now))
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


@given(durations=st.lists(st.integers(1, 9), min_size=200, max_size=200))
def test_namespace_with_many_jobs_goes_on_beside_those_with_few(durations: list[int]) -> None:
    used = play({"a": 50, "b": 1, "c": 1, "d": 1}, [(each, each) for each in durations], 1)
    assert used["a"] >= sum(used.values()) // 5


def play(jobs: dict[str, int], durations: list[tuple[int, int]], places: int) -> Counter[str]:
    """The time that each namespace got; all jobs always have work. `durations`: of the runs of `a`, and of others."""
    fair, now, ends, used = queue(places=places, share=places), 0, list[tuple[int, str, int]](), Counter[str]()
    for key in (f"{group}{number}" for group, count in jobs.items() for number in range(count)):
        fair.put(key, 0.0)
    for of_a, of_others in durations:
        while (taken := fair.take()) is not None:
            ends.append((now + (of_a if taken[0][0] == "a" else of_others), taken[0], now))
        ends.sort()
        now, key, began = ends.pop(0)
        used[key[0]] += now - began
        fair.done(key, float(now - began))
        fair.put(key, float(now))
    return used
