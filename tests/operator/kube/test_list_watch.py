"""How often a watch is opened."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tests.operator.simulation import virtual_time
from tpujob_operator.kube.client import PODS, Storage
from tpujob_operator.kube.list_watch import ListWatch, list_all
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


class OneObjectFails(Ended):
    """A list and a watch with the same two objects, and a sink that cannot handle the first."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.present: Any = None

    def objects(self) -> list[Object]:
        return [{"metadata": {"namespace": "team", "name": name, "resourceVersion": "5"}} for name in ("odd", "even")]

    async def pages(self, *_: Any) -> AsyncIterator[Object]:
        yield {"items": self.objects(), "metadata": {"resourceVersion": "5"}}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "OPENED", {}
        for each in self.objects():
            yield "MODIFIED", each

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        if manifest["metadata"]["name"] == "odd":
            raise RecursionError
        self.told.append(manifest["metadata"]["name"])

    def listed(self, namespace: str | None, present: Any, version: int) -> None:
        self.present = present


async def test_object_that_cannot_be_handled_is_named_and_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    both = OneObjectFails()
    assert await list_all(cast("Storage", both), PODS, None, "", both) == "5"
    assert both.present == {("team", "odd"), ("team", "even")}
    await ListWatch(cast("Storage", both), PODS, None, sink=both)._watch()
    assert both.told == ["even", "even"]
    assert caplog.messages == ["Left aside: pods team/odd"] * 2
