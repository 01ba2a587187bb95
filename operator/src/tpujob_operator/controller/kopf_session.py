"""What kopf gets from us: an event loop of its own, and an HTTP session that answers with identities of jobs.

Kopf decodes with a parser that a deeply nested job ends, and with it the watch of all jobs; and it keeps whole pages.

- A list of jobs is the operator's own: its objects go into the cache, and kopf gets the version to watch from.
- An event of a watch has the job's identity for kopf, and the job itself as a text for the handler.
- All other requests are sent as they are.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Self

import aiohttp
import orjson
from yarl import URL

from tpujob_contract import kubernetes_names
from tpujob_operator.kube.client import JOBS
from tpujob_operator.kube.requests import Object, lines
from tpujob_resource.models.decoding import decoded, readable

logger = logging.getLogger(__name__)


_JOBS_PATH = re.compile(rf"{re.escape(JOBS.root)}(?:/namespaces/([^/]+))?/{JOBS.plural}$")
_IDENTITY = ("namespace", "name", "uid", "resourceVersion")


class KopfSession:
    """The requests of kopf with one set of credentials."""

    def __init__(self, session: aiohttp.ClientSession, list_jobs: Callable[[str | None], Awaitable[str]]) -> None:
        """Sends with `session`; `list_jobs` lists a namespace, or all, and returns the version of the list."""
        self._session = session
        self._list_jobs = list_jobs

    def __getattr__(self, name: str) -> Any:
        """The headers, and whether it is closed, are those of the session."""
        return getattr(self._session, name)

    async def request(self, *, url: str, **options: Any) -> Any:
        """The response to one of kopf's requests."""
        found = _JOBS_PATH.search(URL(url).path)
        if found is None:
            return await self._session.request(url=url, **options)
        if "watch" not in URL(url).query:
            return _Response(version=await self._list_jobs(found[1]))
        response = await self._session.request(url=url, **options)
        return _Response(watch=response) if response.status == 200 else response


class _Response:
    """What kopf uses of a response: `json` of a list, and the `content` of a watch."""

    status = 200

    def __init__(self, version: str = "", watch: aiohttp.ClientResponse | None = None) -> None:
        self._version = version
        self._watch = watch
        self.content = self

    async def json(self) -> Object:
        return {"items": [], "metadata": {"resourceVersion": self._version}}

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        assert self._watch is not None  # a list is asked for json
        async for line in lines(self._watch.content):
            yield _for_kopf(decoded(line, orjson.loads)) + b"\n"

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _for_kopf(event: Object) -> bytes:
    """The line for an event; bookmarks and errors are no jobs."""
    if event["type"] not in ("BOOKMARK", "ERROR"):
        job = readable(event["object"])
        metadata = {name: job["metadata"][name] for name in _IDENTITY}
        kind = {"apiVersion": kubernetes_names.API_VERSION, "kind": kubernetes_names.KIND}
        event["object"] = {**kind, "metadata": metadata, "job": orjson.dumps(job).decode()}
    return orjson.dumps(event)


def job_of(event: Any) -> Object:
    """The job of an event as the handler gets it."""
    job: Object = orjson.loads(event["object"]["job"])
    return job


def run_to_the_first_end(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in a new event loop, like asyncio.run, but does not wait for tasks that refuse to end.

    Kopf leaves such tasks behind when its credentials are refused (they wait for new ones without end).
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: logger.debug("Left behind by the watching: %s", context))
    try:
        loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        # Connections that were just closed need an iteration of the loop to end.
        loop.run_until_complete(asyncio.sleep(0.05))
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), timeout=1))
        loop.close()
