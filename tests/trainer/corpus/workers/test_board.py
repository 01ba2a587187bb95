import numpy as np
import pytest

from tpujob_trainer.corpus.workers import failures
from tpujob_trainer.corpus.workers.board import Board
from tpujob_trainer.storage import open_bucket


@pytest.fixture
def objects(tmp_path):
    return open_bucket(str(tmp_path))


def _board(objects, clock, worker="a"):
    return Board(objects, worker, 12, old_seconds=20, clock=clock, wait=clock.wait)


def _done(objects, *units):
    for unit in units:
        objects.create(f"done/{unit:08d}.json", b"{}")


def test_first_worker_lists(objects, clock):
    _done(objects, 3, 11)
    assert np.flatnonzero(_board(objects, clock).first().done).tolist() == [3, 11]


def test_many_workers_one_listing(objects, clock):
    _done(objects, 3)
    boards = [_board(objects, clock, f"worker-{number}") for number in range(64)]
    for board in boards:
        assert np.flatnonzero(board.first().done).tolist() == [3]
    assert sum(board.listings for board in boards) == 1


def test_listing_counts_failures_by_cause(objects, clock):
    failures.record(objects, "a", 3, MemoryError("on purpose"))
    failures.record(objects, "b", 4, MemoryError("on purpose"))
    objects.create("failures/c-0.json", b"{}")  # as an earlier release named them
    boards = [_board(objects, clock, worker) for worker in ("a", "b")]
    for board in boards:
        assert board.first().failures == {"out of memory": 2, "unknown": 1}


def test_old_board_is_made_anew_once(objects, clock):
    boards = [_board(objects, clock, f"worker-{number}") for number in range(8)]
    for board in boards:
        board.first()
    _done(objects, 5)
    clock.now += 19
    assert not any(board.look().done.any() for board in boards)
    clock.now += 1
    assert [board.look().done[5] for board in boards] == [True] * 8
    assert sum(board.listings for board in boards) == 2


def test_dead_author_is_replaced(objects, clock):
    """It had announced its listing, and never made it."""
    _done(objects, 4)
    objects.create("board.json", b'{"by": "dead", "number": 1, "units": 12}')
    assert _board(objects, clock).first().done[4]
