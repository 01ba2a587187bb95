"""Polls the reports of all running jobs in the background: reconciles use the last report and never wait for one.

- Each job is polled at its own interval, ±10 %, so that the requests spread.
- One that does not answer is polled less often, and each poll has a timeout. A work queue runs the polls, so that pods
  that do not answer delay those of other namespaces no more than jobs of one namespace delay the reconciles of others.
- A report with new content triggers a reconcile.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import aiohttp

from tpujob_contract import ports
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import PATH
from tpujob_operator.base import metrics
from tpujob_operator.observe.report import Progress, progress_from_report
from tpujob_operator.observe.state import Host
from tpujob_operator.observe.terminations import Key
from tpujob_operator.observe.untrusted import parse_json

logger = logging.getLogger(__name__)


TIMEOUT = aiohttp.ClientTimeout(total=2, sock_connect=1)
LARGEST_BYTES = 64 * 1024
NOT_REPORTED = "unknown"
"""The phase of a program that serves no report itself."""


def report_url(host: Host) -> str | None:
    """The URL of the report of a host's process; None: the host has no address yet."""
    return _url(host, ports.REPORT, PATH)


def in_place_url(host: Host) -> str | None:
    """The URL of the launcher's account of restarts in place; None: the host has no address yet."""
    return _url(host, ports.IN_PLACE, in_place.PATH)


def _url(host: Host, port: int, path: str) -> str | None:
    if not host.ip:
        return None
    address = f"[{host.ip}]" if ":" in host.ip else host.ip
    return f"http://{address}:{port}{path}"


async def ask_both(session: aiohttp.ClientSession, report: str, of_launcher: str | None) -> Progress | None:
    """The progress that a process reports, completed by its launcher's account of restarts in place.

    Args:
        session: Makes the requests.
        report: URL of the report of the process.
        of_launcher: URL of its launcher's account; None: it serves none.
    """
    progress = await ask(session, report)
    if of_launcher is None or (progress is not None and progress.in_place is not None):
        return progress
    account = await ask(session, of_launcher)
    if account is None:
        return progress
    return replace(
        progress or Progress(phase=NOT_REPORTED),
        in_place_restarts=account.in_place_restarts,
        in_place_cause=account.in_place_cause,
        in_place=account.in_place,
    )


async def ask(session: aiohttp.ClientSession, url: str) -> Progress | None:
    """The progress that a process reports; None: there is no valid answer, for whatever reason."""
    try:
        # A pod must not decide where else the operator connects.
        async with session.get(url, timeout=TIMEOUT, allow_redirects=False) as answer:
            if answer.status != 200:
                return None
            return progress_from_report(parse_json(await _body(answer.content)))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        logger.debug("No report: %s: %s: %s", url, type(error).__name__, error)
        return None


async def _body(content: aiohttp.StreamReader) -> bytes:
    """The whole body of an answer.

    Raises:
        ValueError: it is longer than any report.
    """
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > LARGEST_BYTES:
            raise ValueError(f"a report has at most {LARGEST_BYTES} bytes")
    return bytes(body)


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
    progress: Progress | None = None
    failures: int = 0


class ReportPoller:
    """Polls process 0 of every added job."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        news: Callable[[Key], None],
        add: Callable[[Key, float], None],
        url: Callable[[Host], str | None] = report_url,
        of_launcher: Callable[[Host], str | None] = in_place_url,
    ) -> None:
        """Stores the parameters.

        Args:
            session: Makes the requests; the caller closes it.
            news: Called for a job whose report has changed.
            add: Asks for a call of `poll` for a job, in some seconds.
            url: The URL of a host's report.
            of_launcher: The URL of its launcher's account of restarts in place; None: there is none.
        """
        self._session = session
        self._news = news
        self._add = add
        self._url = url
        self._of_launcher = of_launcher
        self._polled: dict[Key, _Polled] = {}

    def follow(self, key: Key, host: Host, *, interval: float, asks_launcher: bool = False) -> Progress | None:
        """Polls this host every `interval` seconds from now on; returns its last report, None: there is none yet."""
        url = self._url(host)
        if url is None:
            self.forget(key)
            return None
        polled = self._polled.get(key)
        if polled is None or (polled.pod, polled.url) != (host.pod, url):
            of_launcher = self._of_launcher(host) if asks_launcher else None
            self._polled[key] = polled = _Polled(host.pod, url, of_launcher, interval)
            self._add(key, 0.0)
        elif interval != polled.interval:
            polled.interval = interval
            self._add(key, interval)
        return polled.progress

    def forget(self, key: Key) -> None:
        """Stops polling this job."""
        self._polled.pop(key, None)

    async def poll(self, key: Key) -> float | None:
        """Reads the report of a job once; returns the seconds until the next read, None: it is not polled any more."""
        polled = self._polled.get(key)
        if polled is None:
            return None
        try:
            progress = await ask_both(self._session, polled.url, polled.of_launcher)
        except Exception:  # of this report alone: it counts as one that was not read
            logger.exception("%s/%s: its report cannot be handled", *key)
            progress = None
        metrics.REPORTS.labels("ok" if progress else "unreachable").inc()
        polled.failures = 0 if progress else polled.failures + 1
        is_news = _news_of(progress) != _news_of(polled.progress)
        polled.progress = progress
        if self._polled.get(key) is not polled:
            return None  # its follower was added with its own time
        if is_news:
            self._news(key)
        backoff = min(2.0**polled.failures, LONGEST_BACKOFF) if polled.failures else 1.0
        return polled.interval * backoff * _random.uniform(0.9, 1.1)


def _news_of(progress: Progress | None) -> Progress | None:
    """A report without the fields that change even while nothing happens."""
    return None if progress is None else replace(progress, goodput={}, data_wait_fraction=None)
