import json

import pytest

from tpujob_trainer.corpus.workers.claims import Claims, Sightings, next_name, once
from tpujob_trainer.storage import open_bucket


@pytest.fixture
def objects(tmp_path):
    return open_bucket(str(tmp_path))


@pytest.fixture
def make(objects, clock):
    """A function that makes a worker's claims, renewed by hand alone."""
    made = []

    def claims(worker):
        made.append(Claims(objects, worker, renew_seconds=1e6, lapse_seconds=45, clock=clock))
        return made[-1]

    yield claims
    for each in made:
        each.close()


def test_one_of_two_has_the_unit(make):
    assert make("a").take(7) is not None
    assert make("b").take(7) is None


def test_released_unit_is_free(make):
    first, second = make("a"), make("b")
    first.release(first.take(7))
    assert second.take(7, is_known=True) is not None


def test_renewed_lease_never_lapses(make, clock):
    first, second = make("a"), make("b")
    first.take(7)
    for _ in range(10):
        assert second.take(7, is_known=True) is None
        clock.now += 40
        first.renew()


def test_unchanged_lease_lapses(make, clock):
    first, second = make("a"), make("b")
    first.take(7)
    assert second.take(7) is None
    clock.now += 44
    assert second.take(7) is None
    clock.now += 1
    taken = second.take(7)
    assert taken is not None
    assert taken.taken_over_from == "a"


def test_lease_is_watched_before_it_lapses(make, clock):
    """However old it looks: clocks of hosts differ, and the observer has none but its own."""
    make("a").take(7)
    clock.now += 1e6
    assert make("b").take(7) is None


def test_woken_holder_knows_it_lost(make, clock):
    frozen, other = make("a"), make("b")
    held = frozen.take(7)
    other.take(7)
    clock.now += 45
    other.take(7)
    frozen.renew()
    assert held.is_lost
    frozen.release(held)
    assert make("c").take(7) is None, "the lease of the new holder is gone"


def test_one_of_two_takes_over(make, clock):
    make("a").take(7)
    others = [make("b"), make("c")]
    for other in others:
        other.take(7)
    clock.now += 45
    assert [other.take(7) is not None for other in others] == [True, False]


def test_lost_answer_of_renewal_is_no_loss(make, objects):
    claims = make("a")
    held = claims.take(7)
    name = "claims/00000007"
    found = objects.look(name)
    objects.replace(name, json.dumps({"worker": "a", "token": held.token, "beat": 99}).encode(), version=found.version)
    claims.renew()
    assert not held.is_lost
    claims.release(held)
    assert objects.look(name) is None


def test_close_asks_a_storage_that_is_away_once(make, objects, monkeypatch):
    claims = make("a")
    for unit in range(3):
        claims.take(unit)
    asked = []

    def away(name, **_):
        asked.append(name)
        raise TimeoutError("no answer")

    monkeypatch.setattr(claims._objects, "delete", away)
    claims.close()
    assert len(asked) == 1, "each would take its minute; the leases lapse"
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        pytest.param([(b"1", 0.0)], 0.0, id="first seen"),
        pytest.param([(b"1", 0.0), (b"1", 30.0)], 30.0, id="unchanged"),
        pytest.param([(b"1", 0.0), (b"2", 30.0)], 0.0, id="changed"),
        pytest.param([(b"1", 0.0), (b"2", 30.0), (b"2", 50.0)], 20.0, id="unchanged since it changed"),
    ],
)
def test_how_long_unchanged(seen, seconds):
    sightings = Sightings()
    for generation, now in seen:
        found = sightings.unchanged_seconds("claims/1", generation, now)
    assert found == seconds


def test_check_at_the_end_of_a_run_is_made_once_in_it_and_again_in_the_next(objects):
    made = []

    def check():
        made.append(1)
        return b"[]"

    def run(workers):
        names = [next_name(objects, "check") for _ in range(workers)]
        for worker, name in enumerate(names):
            once(objects, f"w-{worker}", name, check)

    run(3)
    assert len(made) == 1
    run(2)
    assert len(made) == 2
