"""When the watches tell enough for passes to begin."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.controller.watches import Watches
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import PODS, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.terminations import TerminationCache

DEADLINE = 120


class Lists(Storage):
    """Lists of nothing, that of pods not before it may be read, and watches in which nothing happens."""

    def __init__(self, *, refuse_pods: bool = False) -> None:
        self.may_list_pods = asyncio.Event()
        self.asked_for_pods = asyncio.Event()
        self._refuses_pods = refuse_pods

    async def pages(
        self, resource: Resource, namespace: str | None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        if resource == PODS:
            self.asked_for_pods.set()
            await self.may_list_pods.wait()
            if self._refuses_pods:
                raise errors.Forbidden("list pods", 403, "no rights")
        yield {"items": [], "metadata": {"resourceVersion": "1"}}

    async def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        yield "OPENED", {}
        await asyncio.Event().wait()


class ListedJobs:
    """A watch that has told of every job."""

    def is_live(self, namespace: str) -> bool:
        return True

    async def run(self) -> None:
        await asyncio.Event().wait()

    def join(self) -> None:
        """There is no thread."""


@pytest.mark.parametrize("refused", [False, True], ids=["listed", "refused"])
@pytest.mark.parametrize("namespaces", [(), ("team", "other")], ids=["all", "two"])
async def test_passes_wait_for_the_lists(namespaces: tuple[str, ...], refused: bool) -> None:
    """All of them: until the last is read, or is refused and would keep the others waiting for ever."""
    storage, evidence = Lists(refuse_pods=refused), TerminationCache()
    watches = Watches(
        storage,
        Settings(watch_namespaces=namespaces),
        watch_jobs=lambda sink: ListedJobs(),
        cache=Cache(evidence, lambda key: None),
        evidence=evidence,
        staleness=WatchStaleness(),
    )
    running = asyncio.create_task(watches.run())
    waiting = asyncio.create_task(watches.wait_until_current())
    try:
        async with asyncio.timeout(DEADLINE):
            await storage.asked_for_pods.wait()
            assert not waiting.done()
            storage.may_list_pods.set()
            await waiting
        assert all(watches.is_current(namespace) is not refused for namespace in namespaces or ("any",))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_one_namespace_that_cannot_be_listed_holds_up_no_other() -> None:
    storage, evidence, staleness = Lists(), TerminationCache(), WatchStaleness()
    watches = Watches(
        storage,
        Settings(),
        watch_jobs=lambda sink: ListedJobs(),
        cache=Cache(evidence, lambda key: None),
        evidence=evidence,
        staleness=staleness,
    )
    waiting = asyncio.create_task(watches.wait_until_current())
    staleness.note_list_failed(None, "403: no rights")
    async with asyncio.timeout(DEADLINE):
        await waiting
    assert not watches.is_current("any")
