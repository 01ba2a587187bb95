"""Decodes samples in worker processes, some batches ahead; the position is that of the batches taken."""

import collections
import multiprocessing
import os
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.values.errors import ConfigurationError

BATCHES_AHEAD = 2
"""Batches submitted in addition to the next one."""


def _end_with(pid: int) -> None:
    """Ends this process when another one ends: a pool's processes and their server would wait forever otherwise."""
    if hasattr(os, "pidfd_open"):
        loop = os.pidfd_open(pid)
        threading.Thread(target=lambda: select.select([loop], [], []) and os._exit(1), daemon=True).start()


class Source(Protocol):
    """Reads batches of samples, and knows its position."""

    @property
    def state(self) -> np.ndarray:
        """The position after the last batch taken."""

    def __next__(self) -> list[Sample]:
        """The samples of the next batch."""

    def close(self) -> None:
        """Ends the threads."""


def require_importable(function: Callable[[Sample], Any]) -> None:
    """Checks that other processes can import a function.

    Raises:
        ConfigurationError: they cannot, as with a lambda or a function defined inside another function.
    """
    try:
        ForkingPickler.dumps(function)
    except Exception as error:  # An object's own __reduce__ may raise anything.
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigurationError(
            f"samples.map: {name} cannot be sent to another process ({error}); define it at the top of a module"
        ) from error


class Decoding[T](Iterator[list[T]]):
    """The results of a function for the samples of a source; `close` ends the processes and closes the source."""

    def __init__(
        self, source: Source, function: Callable[[Sample], T], *, workers: int, ahead: int = BATCHES_AHEAD
    ) -> None:
        """The processes start with the first batch.

        Args:
            source: Of the samples; `close` closes it, too.
            function: Decodes one sample; other processes must be able to import it.
            workers: Number of processes.
            ahead: Batches that are decoded before they are requested.
        """
        self._source = source
        self._function = function
        self._ahead = ahead
        # Not a fork of this process: it has threads of JAX, and locks that they hold would stay locked in a child.
        context = multiprocessing.get_context("forkserver")
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(os.getpid(),))
        self._pending: collections.deque[tuple[list[tuple[Sample, Future[T]]], np.ndarray]] = collections.deque()
        self._state = source.state

    @property
    def state(self) -> np.ndarray:
        """The position after the last batch taken; batches decoded ahead are decoded again after a restart."""
        return self._state

    def __next__(self) -> list[T]:
        """The results of the next batch, in the order of its samples.

        Raises:
            Exception: the function's own, with the key of the sample as a note.
        """
        while len(self._pending) <= self._ahead:
            samples = next(self._source)
            self._pending.append(([(each, self._submit(each)) for each in samples], self._source.state))
        batch, state = self._pending.popleft()
        results = [self._result(sample, future) for sample, future in batch]
        self._state = state
        return results

    def close(self) -> None:
        """Ends the processes and closes the source; batches decoded ahead are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()
        self._source.close()

    def _submit(self, sample: Sample) -> Future[T]:
        try:
            return self._pool.submit(self._function, sample)
        except BrokenProcessPool as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _result(self, sample: Sample, future: Future[T]) -> T:
        try:
            return future.result()
        except BrokenProcessPool as error:
            error.add_note("A process of samples.map was ended from outside, by the kernel for memory, for instance.")
            raise
        except Exception as error:
            error.add_note(f"In {self._function.__qualname__} of the sample {sample.key!r}.")
            raise
