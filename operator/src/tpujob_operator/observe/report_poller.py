"""Polls the reports of all running jobs in the background: reconciles use the last report and never wait for one.

- Each job is polled at its own interval, ±10 %, so that the requests spread.
- One that does not answer is polled less often. The number of concurrent polls is limited, and each has a timeout, so a
  slow pod takes one of many places for a few seconds.
- A report with new content triggers a reconcile.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import aiohttp

from tpujob_operator import metrics
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.report_client import ask_both, in_place_url, report_url
from tpujob_operator.observe.state import Host
from tpujob_operator.observe.terminations import Key

logger = logging.getLogger(__name__)

AT_ONCE = 32
LONGEST_BACKOFF = 4.0
"""Largest factor of the interval between polls of a process that does not answer."""
_random = random.SystemRandom()


@dataclass(slots=True)
class _Polled:
    """A job whose process 0 is polled."""

    pod: str
    url: str
    of_launcher: str | None
    interval: float
    due: float
    progress: Progress | None = None
    failures: int = 0
    is_asked: bool = False


class ReportPoller:
    """Polls process 0 of every added job."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        news: Callable[[Key], None],
        url: Callable[[Host], str | None] = report_url,
        of_launcher: Callable[[Host], str | None] = in_place_url,
    ) -> None:
        """Stores the parameters; `run` starts the polling.

        Args:
            session: Makes the requests; the caller closes it.
            news: Called for a job whose report has changed.
            url: The URL of a host's report.
            of_launcher: The URL of its launcher's account of restarts in place; None: there is none.
        """
        self._session = session
        self._news = news
        self._url = url
        self._of_launcher = of_launcher
        self._polled: dict[Key, _Polled] = {}
        self._heap: list[tuple[float, Key]] = []
        self._changed = asyncio.Event()
        self._places = asyncio.Semaphore(AT_ONCE)

    def follow(self, key: Key, host: Host, *, interval: float, asks_launcher: bool = False) -> Progress | None:
        """Polls this host every `interval` seconds from now on; returns its last report, None: there is none yet."""
        url = self._url(host)
        if url is None:
            self.forget(key)
            return None
        now = asyncio.get_running_loop().time()
        polled = self._polled.get(key)
        if polled is None or (polled.pod, polled.url) != (host.pod, url):
            self._polled[key] = polled = _Polled(
                host.pod, url, self._of_launcher(host) if asks_launcher else None, interval, due=now
            )
            self._push(key, polled)
        elif interval != polled.interval:
            polled.interval = interval
            if now + interval < polled.due:
                polled.due = now + interval
                self._push(key, polled)
        return polled.progress

    def forget(self, key: Key) -> None:
        """Stops polling this job."""
        self._polled.pop(key, None)

    async def run(self) -> None:
        """Polls until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._places.acquire()
                key, polled = await self._next()
                polled.is_asked = True
                tasks.create_task(self._poll(key, polled))

    def _push(self, key: Key, polled: _Polled) -> None:
        heapq.heappush(self._heap, (polled.due, key))
        self._changed.set()

    async def _next(self) -> tuple[Key, _Polled]:
        """Waits for a job that is due."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            while self._heap and self._heap[0][0] <= loop.time():
                due, key = heapq.heappop(self._heap)
                polled = self._polled.get(key)
                # Otherwise it was forgotten or rescheduled, or is being polled now.
                if polled is not None and polled.due == due and not polled.is_asked:
                    return key, polled
            timeout = max(0.0, self._heap[0][0] - loop.time()) if self._heap else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)

    async def _poll(self, key: Key, polled: _Polled) -> None:
        try:
            progress = await ask_both(self._session, polled.url, polled.of_launcher)
        except Exception:  # an error in one task would cancel the polls of all jobs
            logger.exception("%s/%s: its report cannot be handled", *key)
            progress = None
        finally:
            polled.is_asked = False
            self._places.release()
        metrics.REPORTS.labels("ok" if progress else "unreachable").inc()
        polled.failures = 0 if progress else polled.failures + 1
        backoff = min(2.0**polled.failures, LONGEST_BACKOFF) if polled.failures else 1.0
        polled.due = asyncio.get_running_loop().time() + polled.interval * backoff * _random.uniform(0.9, 1.1)
        is_news = _news_of(progress) != _news_of(polled.progress)
        polled.progress = progress
        if self._polled.get(key) is polled:
            self._push(key, polled)
            if is_news:
                self._news(key)


def _news_of(progress: Progress | None) -> Progress | None:
    """A report without the fields that change even while nothing happens."""
    return None if progress is None else replace(progress, goodput={}, data_wait_fraction=None)
