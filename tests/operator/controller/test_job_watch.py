"""When the watch of jobs counts as one that tells everything."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.job_watch import JobWatch
from tpujob_operator.kube.client import Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.cache import JobCache


class SlowList(Storage):
    """A list of no jobs, which is complete once it may be."""

    def __init__(self) -> None:
        self.is_begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def pages(
        self, resource: Resource, namespace: str | None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        self.is_begun.set()
        await self.may_end.wait()
        yield {"items": [], "metadata": {"resourceVersion": "1"}}


async def test_list_that_outlives_kopf_makes_no_watch_live() -> None:
    storage = SlowList()
    watch = JobWatch(storage, Settings(), JobCache(lambda key: None))
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        tasks.create_task(watch._list(None))
        await storage.is_begun.wait()
        watch._note_ended()
        storage.may_end.set()
    assert not watch.is_live("team")
    await watch._list(None)
    assert watch.is_live("team")
