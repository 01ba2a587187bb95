"""Queries a Prometheus server about chips."""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tpujob.errors import CommandError
from tpujob.fleet import promql
from tpujob.fleet.from_prometheus import Answers, Sample

TIMEOUT_SECONDS = 120.0
"""The default time limit of Prometheus itself for a query."""


def ask(url: str, *, token: str | None = None, span: str, until: datetime) -> Answers:
    """The answers of Prometheus to the expressions of `promql`.

    Args:
        url: As in http://prometheus:9090, with any path before /api/v1.
        token: For a Prometheus behind a proxy that requires one.
        span: As in 7d.
        until: Where the span ends.

    Raises:
        CommandError: the address or the token is malformed, Prometheus does not answer, or it refuses an expression.
    """
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"--prometheus: {url!r} is not an address; write http://HOST:9090, as a browser opens it")
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise CommandError("--token-file: it does not hold a bearer token alone: one line, without spaces")
    expressions = (
        promql.chips(),
        promql.hours_by_phase(span),
        promql.hours_by_use(span),
        promql.restarts(span),
        promql.seen_seconds(span),
    )
    with ThreadPoolExecutor(len(expressions)) as pool:
        found = pool.map(functools.partial(_query, url, token, until), expressions)
        chips, hours, reported, restarts, seen = found
    return Answers(chips=chips, hours=hours, reported=reported, restarts=restarts, seen=seen)


def _query(url: str, token: str | None, until: datetime, expression: str) -> list[Sample]:
    body = urlencode({"query": expression, "time": until.timestamp()}).encode()
    # In the body: some proxies do not allow URLs of an expression's length.
    request = Request(f"{url.rstrip('/')}/api/v1/query", data=body, headers={"User-Agent": "tpujob"})  # noqa: S310 - checked
    if token is not None:
        # The token must not be sent to the target of a redirect.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked by the caller
            found = json.load(answer)
        return [(each["metric"], float(each["value"][1])) for each in found["data"]["result"]]
    except HTTPError as error:
        asked = f"; it asks for {'another' if token else 'a'} token: --token-file" if error.code in (401, 403) else ""
        raise CommandError(f"--prometheus: {url}: {error.code}: {_words(error.read())}{asked}", exit_code=1) from error
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(f"--prometheus: {url} does not answer: {reason}; check the address", exit_code=1) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"--prometheus: {url} does not answer as Prometheus does; its address is what stands before /api/v1"
        ) from error


def _words(body: bytes) -> str:
    try:
        document: Any = json.loads(body)
        return str(document["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
