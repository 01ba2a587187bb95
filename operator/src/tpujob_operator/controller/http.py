"""The operator's HTTP endpoints: /healthz and /readyz on one port, /metrics on another.

- /healthz fails if only a new process can help: the watches have not shown for minutes what lists show, or the loop of
  the operator does not run. It does not fail if the API server is unavailable: a restart would not bring it back.
- /readyz fails if the state is old: no complete list of a namespace for two resync intervals. It names the namespace
  and the API server's message; the other namespaces are served anyway.
- The small server of trainer and launcher handles the connections in its own threads: slow clients take neither the
  operator's loop nor its descriptors. The content of an answer comes from the loop, which owns the state.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tpujob_contract.connections.http_server import Handler, HttpServer, Request, Response, plain
from tpujob_contract.ports import EVERY_ADDRESS
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.watch_staleness import ALLOWED_SECONDS, WatchStaleness

SLACK_SECONDS = 60.0
LOOP_SECONDS = 3.0
"""How long an answer waits for the operator's loop; below the time-outs of the chart's probes."""

type Page = Callable[[], Response]
"""Makes the answer to one path."""


def health_pages(
    staleness: WatchStaleness, *, resync_seconds: float, namespaces: Sequence[str] = ()
) -> Mapping[str, Page]:
    """/healthz and /readyz, with the reason in the body; `namespaces` are those that are served, if not all."""

    def healthz() -> Response:
        behind = staleness.seconds_behind()
        if behind > ALLOWED_SECONDS:
            return plain(503, f"the watches are {behind:.0f} s behind the lists")
        return plain(200, "ok")

    def readyz() -> Response:
        longest = 2 * resync_seconds + SLACK_SECONDS
        found = [_list_problem(staleness, namespace, longest) for namespace in namespaces or (None,)]
        problems = [problem for problem in found if problem is not None]
        return plain(503, "\n".join(problems)) if problems else plain(200, "ok")

    return {"/healthz": healthz, "/readyz": readyz}


def _list_problem(staleness: WatchStaleness, namespace: str | None, longest: float) -> str | None:
    """Why this process is not ready, as a line; None: the lists of this namespace are new enough."""
    age, error = staleness.seconds_since_list(namespace), staleness.list_error(namespace)
    if age is not None and age <= longest:
        return None
    where = f"namespace {namespace}: " if namespace is not None else ""
    why = f": {error}" if error is not None else ""
    return f"{where}{'nothing listed yet' if age is None else f'the last complete list is {age:.0f} s old'}{why}"


def _metrics() -> Response:
    return Response(200, CONTENT_TYPE_LATEST, generate_latest())


@asynccontextmanager
async def serving(staleness: WatchStaleness, settings: Settings) -> AsyncIterator[None]:
    """Serves both on all addresses while the block runs.

    Raises:
        OSError: a port is taken.
    """
    health = health_pages(staleness, resync_seconds=settings.resync_seconds, namespaces=settings.watch_namespaces)
    async with listening(health, settings.health_port), listening({"/metrics": _metrics}, settings.metrics_port):
        yield


@asynccontextmanager
async def listening(pages: Mapping[str, Page], port: int, *, host: str = EVERY_ADDRESS) -> AsyncIterator[HttpServer]:
    """A server of these pages while the block runs."""
    async with AsyncExitStack() as stack:
        server = HttpServer(_handler(pages, asyncio.get_running_loop()), host=host, port=port)
        # Its thread may wait for this loop.
        stack.push_async_callback(asyncio.to_thread, server.close)
        server.start()
        yield server


def _handler(pages: Mapping[str, Page], loop: asyncio.AbstractEventLoop) -> Handler:
    """A handler for the server's threads; the loop makes the pages."""

    async def made(make: Page) -> Response:
        return make()

    def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return plain(405, "GET alone is answered here")
        make = pages.get(request.path)
        if make is None:
            return plain(404, f"there are {', '.join(pages)}")
        waiting = asyncio.run_coroutine_threadsafe(made(make), loop)
        try:
            return waiting.result(LOOP_SECONDS)
        except TimeoutError:
            waiting.cancel()
            return plain(503, f"the operator's loop has not run for {LOOP_SECONDS:g} s")

    return answer
