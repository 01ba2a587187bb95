import os

import numpy as np
import pytest

from tpujob_trainer.corpus.workers import failures
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.storage import open_bucket


@pytest.fixture
def objects(tmp_path):
    return open_bucket(str(tmp_path))


def _index(objects, clock, worker="a"):
    return ProgressIndex(objects, worker, 12, old_seconds=20, clock=clock, wait=clock.wait)


def _done(objects, *units):
    for unit in units:
        objects.create(f"done/{unit:08d}.json", b"{}")


def test_first_worker_lists(objects, clock):
    _done(objects, 3, 11)
    assert np.flatnonzero(_index(objects, clock).first().done).tolist() == [3, 11]


@pytest.mark.parametrize(
    "name", ["README.md", "x.json", "00000012.json", "00000003.json.orig", "-0000001.json", os.fsdecode(b"\xff.json")]
)
def test_file_of_another_is_no_unit(objects, clock, tmp_path, name):
    _done(objects, 3)
    (tmp_path / "done" / name).touch()
    assert np.flatnonzero(_index(objects, clock).first().done).tolist() == [3]


def test_many_workers_one_listing(objects, clock):
    _done(objects, 3)
    indexes = [_index(objects, clock, f"worker-{number}") for number in range(64)]
    for index in indexes:
        assert np.flatnonzero(index.first().done).tolist() == [3]
    assert sum(index.listings for index in indexes) == 1


def test_listing_counts_failures_by_cause(objects, clock):
    failures.record(objects, "a", 3, MemoryError("on purpose"))
    failures.record(objects, "b", 4, MemoryError("on purpose"))
    objects.create("failures/c-0.json", b"{}")  # as an earlier release named them
    indexes = [_index(objects, clock, worker) for worker in ("a", "b")]
    for index in indexes:
        assert index.first().failures == {"out of memory": 2, "unknown": 1}


def test_old_index_is_listed_again_once(objects, clock):
    indexes = [_index(objects, clock, f"worker-{number}") for number in range(8)]
    for index in indexes:
        index.first()
    _done(objects, 5)
    clock.now += 19
    assert not any(index.look().done.any() for index in indexes)
    clock.now += 1
    assert [index.look().done[5] for index in indexes] == [True] * 8
    assert sum(index.listings for index in indexes) == 2


def test_index_of_this_worker_before_its_restart_is_listed_again_once(objects, clock):
    for number in range(3):
        _index(objects, clock, f"job-{number}-before").first()
    _done(objects, 5)
    indexes = [_index(objects, clock, f"job-{number}-after") for number in range(3)]
    for index in indexes:
        assert np.flatnonzero(index.first().done).tolist() == [5]
    assert sum(index.listings for index in indexes) == 1


def test_dead_author_is_replaced(objects, clock):
    """It had announced its listing, and never made it."""
    _done(objects, 4)
    objects.create("board.json", b'{"by": "dead", "number": 1, "units": 12}')
    assert _index(objects, clock).first().done[4]
