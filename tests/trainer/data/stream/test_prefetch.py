import concurrent.futures
import itertools
import threading

import pytest

from tpujob_trainer.data.stream.prefetch import Ahead, ReadPool

WAIT_SECONDS = 120


class Made:
    """Numbers, and the word when so many were made."""

    def __init__(self):
        self._count = itertools.count()
        self.made = 0
        self._condition = threading.Condition()

    def __call__(self):
        with self._condition:
            self.made += 1
            self._condition.notify_all()
        return [next(self._count)]

    def wait_for(self, count):
        with self._condition:
            return self._condition.wait_for(lambda: self.made >= count, WAIT_SECONDS)


def fail_after(count):
    numbers = iter(range(count))

    def make():
        try:
            return [next(numbers)]
        except StopIteration:
            raise OSError("disk on fire") from None

    return make


def test_results_keep_their_order():
    ahead = Ahead(Made(), depth=3)

    assert [ahead.take() for _ in range(50)] == list(range(50))
    ahead.close()


def test_no_more_is_held_than_agreed():
    made = Made()
    ahead = Ahead(made, depth=3)

    assert made.wait_for(3)
    for taken in range(1, 5):
        ahead.take()
        assert made.wait_for(3 + taken)
        assert made.made <= 3 + taken
    ahead.close()


def test_several_results_at_once_are_made_when_few_are_left():
    made = Made()
    ahead = Ahead(lambda: [*made(), *made(), *made()], depth=2)

    assert made.wait_for(3)
    assert ahead.take() == 0
    assert made.made == 3
    assert ahead.take() == 1
    assert made.wait_for(6)
    assert [ahead.take() for _ in range(20)] == list(range(2, 22))
    ahead.close()


def test_error_comes_after_what_was_made():
    ahead = Ahead(fail_after(2), depth=5)

    assert [ahead.take(), ahead.take()] == [0, 1]
    for _ in range(2):
        with pytest.raises(OSError, match="disk on fire"):
            ahead.take()
    ahead.close()


def test_close_ends_the_thread():
    before = set(threading.enumerate())
    ahead = Ahead(Made(), depth=1)

    ahead.close()

    assert set(threading.enumerate()) <= before
    with pytest.raises(ValueError, match="closed"):
        ahead.take()


def test_close_waits_for_the_reads_under_way():
    before = set(threading.enumerate())
    begun, done = threading.Event(), []

    def read():
        begun.set()
        threading.Event().wait(0.1)
        done.append(True)

    pool = ReadPool(2)
    pool.submit(read)
    assert begun.wait(WAIT_SECONDS)

    pool.close()

    assert done == [True]
    assert set(threading.enumerate()) <= before


def test_close_does_not_wait_for_a_read_that_hangs():
    hanging, release = threading.Event(), threading.Event()

    def hang():
        hanging.set()
        release.wait(WAIT_SECONDS)

    pool = ReadPool(1)
    pool.submit(hang)
    assert hanging.wait(WAIT_SECONDS)
    waiting = pool.submit(lambda: 1)

    pool.close()
    release.set()

    with pytest.raises(concurrent.futures.CancelledError):
        waiting.wait()


def test_waiting_taker_is_told_of_the_close():
    release = threading.Event()
    ahead = Ahead(lambda: [release.wait(WAIT_SECONDS)], depth=1)
    told = []

    def taker():
        try:
            ahead.take()
        except ValueError as error:
            told.append(str(error))

    thread = threading.Thread(target=taker)
    thread.start()
    closing = threading.Thread(target=ahead.close)
    closing.start()
    thread.join(WAIT_SECONDS)
    release.set()
    closing.join(WAIT_SECONDS)

    assert told == ["the loader is closed"]


def test_error_in_a_read_is_raised_where_it_is_wanted():
    pool = ReadPool(2)

    failing = pool.submit(fail_after(0))

    with pytest.raises(OSError, match="disk on fire"):
        failing.wait()
    assert not failing.is_there(), "what can be had before it is given first"
    pool.close()
