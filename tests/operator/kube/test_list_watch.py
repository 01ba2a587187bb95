"""How often a watch is opened."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from tests.operator.simulation import virtual_time
from tpujob_operator.kube.client import PODS, Storage
from tpujob_operator.kube.list_watch import ListWatch
from tpujob_operator.kube.requests import Object


class Ended:
    """An API server, or a proxy before it, that ends each stream at once."""

    opened = 0

    async def pages(self, *_: Any) -> AsyncIterator[Object]:
        yield {"items": [], "metadata": {"resourceVersion": "1"}}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        self.opened += 1
        yield "OPENED", {}


class Ignored:
    """A sink."""

    def changed(self, manifest: Object, *, deleted: bool) -> None: ...

    def listed(self, namespace: str | None, present: Any, version: int) -> None: ...


def test_stream_that_ends_at_once_is_not_opened_in_a_busy_loop() -> None:
    server = Ended()

    async def watch_for_a_minute() -> None:
        watch = ListWatch(cast("Storage", server), PODS, None, sink=Ignored())
        running = asyncio.create_task(watch.run())
        await asyncio.wait([running], timeout=60)
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(watch_for_a_minute())
    assert 3 <= server.opened <= 30
