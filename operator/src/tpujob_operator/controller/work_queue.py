"""Schedules reconciles: one run at a time per job, many jobs at once.

- All requests for a job while it waits are one run: a run reads everything again, so it answers all of them.
- A request that arrives during a run makes another run after it; what the run did not see is not lost.
- Groups of keys (namespaces) take turns, so that a burst of thousands in one does not delay a job in another.
- A run that fails is tried again after a growing, jittered delay; a request in the meantime runs sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

from tpujob_operator import metrics
from tpujob_operator.kube.backoff import backoff_seconds

logger = logging.getLogger(__name__)


class WorkQueue[Key: Hashable]:
    """Runs a handler for keys as they become due.

    The handler returns the seconds until its next call for the key, or None. The queue belongs to one event loop: other
    threads add keys with `loop.call_soon_threadsafe(queue.add, key)`.
    """

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int = 8,
        group: Callable[[Key], Hashable] = lambda key: None,
    ) -> None:
        """Stores the parameters; `run` starts the queue.

        Args:
            handle: Called for a key; an exception counts as a failure of that key.
            workers: Most keys handled at once.
            group: Of a key; groups with keys that are due take turns, within one the key that is due longest is next.
        """
        self._group = group
        self._handle = handle
        self._workers = asyncio.Semaphore(workers)
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0
        self._ready: dict[Hashable, deque[tuple[float, Key]]] = {}
        """The keys that are due, by group; the group whose turn it is comes first."""
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Asks for a run in `after` seconds, unless one is already due sooner."""
        due = asyncio.get_running_loop().time() + after
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._push(key, due)

    def _push(self, key: Key, due: float) -> None:
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, key))
        self._changed.set()

    async def run(self) -> None:
        """Handles keys until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._workers.acquire()
                key = await self._next()
                self._running.add(key)
                tasks.create_task(self._run_one(key))

    async def _next(self) -> Key:
        """Waits for a key that is due and not being handled; removes it from the queue."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            while self._heap and self._heap[0][0] <= loop.time():
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due:  # a superseded one would cost its group a turn
                    self._ready.setdefault(self._group(key), deque()).append((due, key))
            while self._ready:
                due, key = self._take_turn()
                # Superseded by an earlier request, or due again when its current run ends.
                if self._due.get(key) != due or key in self._running:
                    continue
                del self._due[key]
                metrics.QUEUED.set(len(self._due))
                metrics.QUEUE_SECONDS.observe(loop.time() - due)
                return key
            timeout = max(0.0, self._heap[0][0] - loop.time()) if self._heap else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)

    def _take_turn(self) -> tuple[float, Key]:
        """The first key of the group whose turn it is; that group goes to the back."""
        group = next(iter(self._ready))
        waiting = self._ready.pop(group)
        taken = waiting.popleft()
        if waiting:
            self._ready[group] = waiting
        return taken

    async def _run_one(self, key: Key) -> None:
        delay: float | None = None
        try:
            delay = await self._handle(key)
            self._failures.pop(key, None)
        except Exception:
            # The handler catches the errors that it expects. This is a defect: log it all, and handle the other keys.
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            delay = backoff_seconds(failures)
            logger.exception("Handling failed: %s, failure %d in a row, again in %.1f s", key, failures, delay)
        finally:
            self._running.discard(key)
            self._workers.release()
        if key in self._due:
            # Its entry in the heap may have been reached, and skipped, during the run.
            self._push(key, self._due[key])
        if delay is not None:
            self.add(key, delay)
