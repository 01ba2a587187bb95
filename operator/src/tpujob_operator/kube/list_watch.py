"""Lists all objects of a resource, and then watches all changes from the version of the list.

- A watch that ends is opened again at its last version; if the API server does not know that version any more (410), it
  starts with a new list. Objects that such a list lacks are gone, even if no watch has reported it.
- Every error is followed by another attempt, at growing and jittered intervals, without end.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from tpujob_operator.base import metrics
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Storage
from tpujob_operator.kube.errors import backoff_seconds
from tpujob_operator.kube.requests import Object, Resource

logger = logging.getLogger(__name__)

LONGEST_RETRY_SECONDS = 15.0
SHORT_SECONDS = 1.0
"""A stream that ends sooner, without an event, counts as failed; the API server ends one after minutes."""
QUIET_RETRIES = 3
"""This many failures in a row are not logged as a warning: an API server that is replaced ends every connection."""


class Sink(Protocol):
    """The receiver of lists and events."""

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        """Receives an object as it is now, or as it was when it was deleted; may repeat an earlier call."""

    def listed(self, namespace: str | None, present: Collection[tuple[str, str]], version: int) -> None:
        """Receives (namespace, name) of all objects of a namespace, or of all of them, as of this resource version."""


async def list_all(storage: Storage, resource: Resource, namespace: str | None, selector: str, sink: Sink) -> str:
    """Passes all objects, and then all their names, to the sink; returns the resource version of the list.

    It reads page by page and keeps no page: whole objects would fill the memory.

    Raises:
        ApiError: a page could not be read.
    """
    present, version = set(), ""
    async for page in storage.pages(resource, namespace, selector):
        for item in page["items"]:
            with isolated(resource, item):
                sink.changed(item, deleted=False)
            present.add((item["metadata"]["namespace"], item["metadata"]["name"]))
        version = page["metadata"]["resourceVersion"]
        await asyncio.sleep(0)
    sink.listed(namespace, present, int(version))
    return version


@contextmanager
def isolated(resource: Resource, manifest: Object) -> Iterator[None]:
    """Leaves an object aside, and names it, if the block fails with it: no object ends the watch of the others."""
    try:
        yield
    except Exception:
        metrics.UNREADABLE.labels(resource.plural).inc()
        metadata = manifest["metadata"]
        logger.exception("Left aside: %s %s/%s", resource.plural, metadata["namespace"], metadata["name"])


class ListWatch:
    """Lists and watches one resource of one namespace, or of all of them."""

    def __init__(
        self, storage: Storage, resource: Resource, namespace: str | None, *, selector: str = "", sink: Sink
    ) -> None:
        """Stores the parameters; `run` starts it."""
        self._storage = storage
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._sink = sink
        self._version = ""
        self.is_live = False
        """Whether the sink has all objects, and an open watch feeds it."""
        self.failures = 0
        """Errors in a row."""
        self._short = 0
        """Streams in a row that ended at once and without an event."""

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            try:
                if not self._version:
                    self._version = await list_all(
                        self._storage, self._resource, self._namespace, self._selector, self._sink
                    )
                opened = asyncio.get_running_loop().time()
                if await self._watch():
                    self.failures = self._short = 0
                elif asyncio.get_running_loop().time() - opened < SHORT_SECONDS:
                    # A proxy may end each stream at once, without an error: that must not become a busy loop.
                    self._short += 1
                    await asyncio.sleep(backoff_seconds(self._short, longest=LONGEST_RETRY_SECONDS))
                else:
                    self._short = 0
            except errors.ApiError as error:
                self.is_live = False
                if isinstance(error, errors.Gone):
                    self._version = ""
                self.failures += 1
                metrics.WATCH_RESTARTS.inc()
                delay = backoff_seconds(self.failures, longest=LONGEST_RETRY_SECONDS)
                level = logging.WARNING if self.failures > QUIET_RETRIES else logging.INFO
                logger.log(level, "Watching %s again in %.1f s: %s", self._resource.plural, delay, error)
                await asyncio.sleep(delay)

    async def _watch(self) -> bool:
        """Follows one stream until the API server ends it; returns whether it had an event."""
        told = False
        events = self._storage.watch(self._resource, self._namespace, selector=self._selector, version=self._version)
        async for kind, manifest in events:
            metrics.WATCH_LAST_EVENT.labels(self._resource.plural).set_to_current_time()
            if kind == "OPENED":
                self.is_live = True
                continue
            told = True
            self._version = manifest["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                metrics.WATCH_EVENTS.labels(self._resource.plural).inc()
                with isolated(self._resource, manifest):
                    self._sink.changed(manifest, deleted=kind == "DELETED")
        return told
