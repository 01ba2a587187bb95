"""What a process says of itself, asked over HTTP once."""

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
UNTOLD = "unknown"
"""The phase of a program that serves no report itself."""


def report_url(host: Host) -> str | None:
    """Where a host's process serves its report; None before it has an address."""
    return _url(host, ports.REPORT, PATH)


def in_place_url(host: Host) -> str | None:
    """Where the launcher of process 0 serves what it has counted of restarts in place."""
    return _url(host, ports.IN_PLACE, in_place.PATH)


def _url(host: Host, port: int, path: str) -> str | None:
    if not host.ip:
        return None
    address = f"[{host.ip}]" if ":" in host.ip else host.ip
    return f"http://{address}:{port}{path}"


async def ask_both(session: aiohttp.ClientSession, report: str, of_launcher: str | None) -> Progress | None:
    """The progress that a process reports, with its launcher's account of restarts in place where it gives none.

    Args:
        session: Makes the requests.
        report: Where the process serves its report.
        of_launcher: Where its launcher serves the account; None: nowhere.
    """
    progress = await ask(session, report)
    if of_launcher is None or (progress is not None and progress.in_place is not None):
        return progress
    told = await ask(session, of_launcher)
    if told is None:
        return progress
    return replace(
        progress or Progress(phase=UNTOLD),
        in_place_restarts=told.in_place_restarts,
        in_place_cause=told.in_place_cause,
        in_place=told.in_place,
    )


async def ask(session: aiohttp.ClientSession, url: str) -> Progress | None:
    """The progress that a process reports; None when it is not to be had, for whatever reason."""
    try:
        # A pod is no authority on where else the operator should connect.
        async with session.get(url, timeout=TIMEOUT, allow_redirects=False) as answer:
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
