"""One HTTP request for the report of a process."""

from __future__ import annotations

import logging
from dataclasses import replace

import aiohttp

from tpujob_contract.connections import ports
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import PATH
from tpujob_operator.observe.report import Progress, progress_from_report
from tpujob_operator.observe.state import Host
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
