"""Threads that work ahead of the training loop, and never prevent the process from ending.

They are daemon threads: a read that hangs on the network ends with the process, not the other way round.
"""

import collections
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

CLOSE_SECONDS = 1.0
"""How long close() waits for a thread in the middle of something; it ends by itself after that."""


class Pending[T](Protocol):
    """A value that is being made."""

    def is_there(self) -> bool:
        """Whether `wait` returns the value at once."""

    def wait(self) -> T:
        """The value; raises the error that making it raised."""


class Deferred[T]:
    """A value computed by the caller, on `wait`."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.wait = work

    def is_there(self) -> bool:
        """False: the value is made only when it is asked for."""
        return False


class _InPool[T]:
    """A value that is made by a thread of a pool."""

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.wait = self.future.result

    def is_there(self) -> bool:
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None


class ReadPool:
    """Runs functions in a few threads."""

    def __init__(self, threads: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"read-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit[T](self, work: Callable[[], T]) -> Pending[T]:
        """Queues the work; returns its result, which is pending."""
        pending: _InPool[T] = _InPool()
        future = pending.future

        def task() -> None:
            if self._closed:
                future.cancel()
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                future.set_exception(error)

        self._tasks.put(task)
        return pending

    def close(self) -> None:
        """Starts no further work, and ends each thread after its current item.

        Waits for the threads briefly: an interpreter that ends while a thread is inside Arrow is aborted.
        """
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        until = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class Ahead[T]:
    """Calls a function in a thread whenever fewer than `depth` results are left.

    A call gives one result, or several at once: waking a thread costs as much as making a small batch.
    """

    def __init__(self, make: Callable[[], Sequence[T]], depth: int) -> None:
        self._make = make
        self._depth = depth
        self._made: collections.deque[T] = collections.deque()
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def take(self) -> T:
        """The next result; an error of the function is raised here, after the results before it.

        Raises:
            ValueError: it was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._error or self._closed)
            if self._closed:
                raise ValueError("the loader is closed")
            if self._made:
                taken = self._made.popleft()
                if len(self._made) < self._depth:
                    self._changed.notify_all()
                return taken
            assert self._error is not None
            raise self._error

    def close(self) -> None:
        """Drops the results, and ends the thread; waiting calls of `take` raise an error."""
        with self._changed:
            self._closed = True
            self._made.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._made) < self._depth or self._closed)
                if self._closed:
                    return
            try:
                results = self._make()
            except BaseException as error:  # noqa: BLE001 - raised again by take(), in the thread that can act on it
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                if not self._closed:
                    self._made.extend(results)
                self._changed.notify_all()
