"""The HTTP side: /healthz and /readyz on one port, /metrics and a page for people on another.

- /healthz fails when only a new process can help: the watches have not shown for minutes what lists show. It does not
  fail because the API server is away, for a restart would not bring it back.
- /readyz fails when what is known is old: no complete list of a namespace for two resync intervals. It names the
  namespace and what the API server said; the other namespaces are served all the same.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tpujob_operator.controller import page
from tpujob_operator.controller.watch_staleness import ALLOWED_SECONDS, WatchStaleness
from tpujob_operator.settings import Settings

logger = logging.getLogger(__name__)

SLACK_SECONDS = 60.0


def health_app(staleness: WatchStaleness, *, resync_seconds: float, namespaces: Sequence[str] = ()) -> web.Application:
    """Answers /healthz and /readyz, with the reason in the body; `namespaces` are those that are served, if not all."""

    async def healthz(_: web.Request) -> web.Response:
        behind = staleness.seconds_behind()
        if behind > ALLOWED_SECONDS:
            return web.Response(status=503, text=f"the watches are {behind:.0f} s behind the lists\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        longest = 2 * resync_seconds + SLACK_SECONDS
        found = [_list_problem(staleness, namespace, longest) for namespace in namespaces or (None,)]
        problems = [problem for problem in found if problem is not None]
        return web.Response(status=503, text="".join(problems)) if problems else web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


def _list_problem(staleness: WatchStaleness, namespace: str | None, longest: float) -> str | None:
    """What makes this process not ready, as a line; None when the lists of this namespace are new enough."""
    age, error = staleness.seconds_since_list(namespace), staleness.list_error(namespace)
    if age is not None and age <= longest:
        return None
    where = f"namespace {namespace}: " if namespace is not None else ""
    why = f": {error}" if error is not None else ""
    return f"{where}{'nothing listed yet' if age is None else f'the last complete list is {age:.0f} s old'}{why}\n"


def metrics_app(overview: Callable[[], page.Overview]) -> web.Application:
    """Answers /metrics in the Prometheus text format, and / with what `overview` says, as a page."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def show(_: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": page.SECURITY_POLICY, "X-Content-Type-Options": "nosniff"}
        return web.Response(body=page.render(overview()), content_type="text/html", charset="utf-8", headers=headers)

    app = web.Application()
    app.add_routes([web.get("/metrics", answer), web.get("/", show)])
    return app


@asynccontextmanager
async def serving(
    staleness: WatchStaleness, settings: Settings, overview: Callable[[], page.Overview]
) -> AsyncIterator[None]:
    """Serves both on all addresses while the block runs; `overview` is asked for each view of the page."""
    apps = (
        (
            health_app(staleness, resync_seconds=settings.resync_seconds, namespaces=settings.watch_namespaces),
            settings.health_port,
        ),
        (metrics_app(overview), settings.metrics_port),
    )
    runners: list[web.AppRunner] = []
    try:
        for app, port in apps:
            runner = web.AppRunner(app, access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, port=port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()
