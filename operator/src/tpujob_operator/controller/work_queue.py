"""Schedules runs: one at a time per job, many jobs at once; namespaces share the places, see `fair_queue`.

- All requests for a job while it waits are one run: a run reads everything again, so it answers all of them.
- A request that arrives during a run makes another run after it; what the run did not see is not lost.
- A run that asks for the next one at once, such as the one that records what was created, gets it in its place.
- A run that fails is tried again after a growing, jittered delay; a request in the meantime runs sooner.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Hashable

from tpujob_operator.controller.fair_queue import FairQueue
from tpujob_operator.kube.errors import backoff_seconds

logger = logging.getLogger(__name__)

MOST_IN_A_ROW = 3
"""Runs of a key in one place; a creation takes two or three."""


class WorkQueue[Key: Hashable]:
    """Runs a handler for keys as they become due.

    The handler returns the seconds until its next call for the key, or None. The queue belongs to one event loop: other
    threads add keys with `loop.call_soon_threadsafe(queue.add, key)`.
    """

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        ready: FairQueue[Key],
        *,
        waited: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Stores the parameters; `run` starts the queue.

        Args:
            handle: Called for a key; an exception counts as a failure of that key.
            ready: Gets the keys that are due, and decides which of them is next.
            waited: Called with the seconds that a key was due before its run.
        """
        self._handle = handle
        self._ready = ready
        self._waited = waited
        self._due: dict[Key, float] = {}
        """When the keys that are not due yet will be."""
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Asks for a run in `after` seconds, unless one is already due sooner."""
        due = asyncio.get_running_loop().time() + after
        if key in self._ready or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, key))
        self._changed.set()

    async def run(self) -> None:
        """Handles keys until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                while self._heap and self._heap[0][0] <= loop.time():
                    due, _, key = heapq.heappop(self._heap)
                    if self._due.get(key) == due:  # not superseded by a request for an earlier time
                        del self._due[key]
                        self._ready.put(key, due)
                while (taken := self._ready.take()) is not None:
                    self._waited(loop.time() - taken[1])
                    tasks.create_task(self._run_one(taken[0]))
                timeout = max(0.0, self._heap[0][0] - loop.time()) if self._heap else None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), timeout)

    async def _run_one(self, key: Key) -> None:
        delay: float | None = None
        started = asyncio.get_running_loop().time()
        try:
            for _ in range(MOST_IN_A_ROW):
                delay = await self._handle(key)
                self._failures.pop(key, None)
                if delay != 0:
                    break
        except Exception:
            # The handler catches the errors that it expects. This is a defect: log it all, and handle the other keys.
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            delay = backoff_seconds(failures)
            logger.exception("Handling failed: %s, failure %d in a row, again in %.1f s", key, failures, delay)
        finally:
            self._ready.done(key, asyncio.get_running_loop().time() - started)
            self._changed.set()
        if delay is not None:
            self.add(key, delay)
