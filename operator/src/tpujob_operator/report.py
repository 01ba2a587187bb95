"""What process 0 of a running job says of itself, asked over HTTP at most every few seconds."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp

from tpujob_contract import ports
from tpujob_operator import metrics
from tpujob_operator.evidence import Key
from tpujob_operator.observed import Host, Progress

logger = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=2, sock_connect=1)
LARGEST_BYTES = 64 * 1024
AT_ONCE = 32


def report_url(host: Host) -> str | None:
    """Where a host's process serves its report; None before it has an address."""
    if not host.ip:
        return None
    address = f"[{host.ip}]" if ":" in host.ip else host.ip
    return f"http://{address}:{ports.REPORT}/report"


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

    async def of(self, key: Key, host: Host) -> Progress | None:
        """The progress that this host reports, or None when it is not to be had."""
        url = self._url(host)
        if url is None:
            return None
        now = asyncio.get_running_loop().time()
        asked, last = self._last.get(key, (-math.inf, None))
        # A little early counts as due: the next reconcile is timed by the same interval.
        if now - asked < 0.9 * self._interval:
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
                body = await answer.content.read(LARGEST_BYTES)
                return progress_from_report(json.loads(body))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            logger.debug("No report: %s: %s: %s", url, type(error).__name__, error)
            return None


def progress_from_report(report: Any) -> Progress:
    """The part of a report that goes into status. Written by the user's pod, so nothing in it is trusted to make sense.

    Raises:
        ValueError: it is not a JSON object.
    """
    if not isinstance(report, dict):
        raise ValueError("a report is a JSON object")  # noqa: TRY004 — of somebody else's, not an argument
    committed_at = _number(report.get("committed_time"))
    return Progress(
        phase=str(report.get("phase", ""))[:40],
        step=_count(report.get("step")),
        steps=_count(report.get("steps")),
        loss=_number(report.get("loss")),
        tokens_per_second=_number(report.get("tokens_per_second")),
        committed_step=_count(report.get("committed_step")),
        committed_at=_time(committed_at),
        message=str(report.get("message") or "")[:500],
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**53 else None


def _time(value: float | None) -> datetime | None:
    if value is None or not 0 < value < 2**33:
        return None
    return datetime.fromtimestamp(value, UTC)
