"""What process 0 of a running job says of itself, asked over HTTP at most every few seconds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

import aiohttp

from tpujob_contract import ports
from tpujob_contract.report import PATH
from tpujob_operator import metrics
from tpujob_operator.observe.report import Progress, progress_from_report
from tpujob_operator.observe.state import Host
from tpujob_operator.observe.terminations import Key
from tpujob_operator.observe.untrusted import parse_json

logger = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=2, sock_connect=1)
LARGEST_BYTES = 64 * 1024
AT_ONCE = 32


def report_url(host: Host) -> str | None:
    """Where a host's process serves its report; None before it has an address."""
    if not host.ip:
        return None
    address = f"[{host.ip}]" if ":" in host.ip else host.ip
    return f"http://{address}:{ports.REPORT}{PATH}"


class Reports:
    """Asks for reports: each job's at most once per interval, few at once, and never for long."""

    def __init__(
        self, session: aiohttp.ClientSession, *, interval: float, url: Callable[[Host], str | None] = report_url
    ) -> None:
        """Keeps the session, which stays the caller's to close.

        Args:
            session: Makes the requests.
            interval: Seconds; asked again sooner, the last answer is given.
            url: Where a host's report is.
        """
        self._session = session
        self._interval = interval
        self._url = url
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._last: dict[Key, tuple[float, Progress | None]] = {}

    async def of(self, key: Key, host: Host, *, at_once: bool = False) -> Progress | None:
        """The progress that this host reports, or None when it is not to be had.

        Args:
            key: Of the job.
            host: The host that is asked.
            at_once: Whether it is asked although its turn has not come.
        """
        url = self._url(host)
        if url is None:
            return None
        now = asyncio.get_running_loop().time()
        asked, last = self._last.get(key, (-math.inf, None))
        # A little early counts as due: the next reconcile is timed by the same interval.
        if not at_once and now - asked < 0.9 * self._interval:
            return last
        async with self._at_once:
            progress = await self._ask(url)
        self._last[key] = (now, progress)
        metrics.REPORTS.labels("ok" if progress else "unreachable").inc()
        return progress

    def forget(self, key: Key) -> None:
        """Drops a job that is gone or over."""
        self._last.pop(key, None)

    async def _ask(self, url: str) -> Progress | None:
        try:
            # A pod is no authority on where else the operator should connect.
            async with self._session.get(url, timeout=TIMEOUT, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                return progress_from_report(parse_json(await _body(answer.content)))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            logger.debug("No report: %s: %s: %s", url, type(error).__name__, error)
            return None


async def _body(content: aiohttp.StreamReader) -> bytes:
    """All of an answer, in however many pieces it comes.

    Raises:
        ValueError: it is longer than any report.
    """
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > LARGEST_BYTES:
            raise ValueError(f"a report has at most {LARGEST_BYTES} bytes")
    return bytes(body)
