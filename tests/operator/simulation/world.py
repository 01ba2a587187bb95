"""A cluster without faults and one operator, for stories that a test directs itself."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Self

import pytest

from tests.operator.building import job
from tests.operator.simulation import operator, virtual_time
from tests.operator.simulation.api import Faults, Object, Server
from tests.operator.simulation.cluster import Cluster
from tests.operator.simulation.promises import JOBS, Promises
from tests.statuses import flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller import resync
from tpujob_operator.kube import errors
from tpujob_operator.observe import report_poller

NAME = "llama"


class World:
    """Everything that runs while a story is played; all of it follows from the seed."""

    def __init__(self, seed: int = 0, *, settings: Settings = operator.SETTINGS) -> None:
        self.random = Random(seed)  # noqa: S311 — to be repeated, not to be secret
        self.server = Server()
        self.faults = Faults(self.random)
        self.cluster = Cluster(self.server, self.random)
        self.promises = Promises(self.server)
        self.defects: list[BaseException] = []
        self._settings = settings

    def create_job(self, **spec: Any) -> None:
        """The job of every story."""
        self.server.create(JOBS, {**job(**spec), "metadata": {"name": NAME}})

    @property
    def job(self) -> Object:
        """As it is stored now."""
        found = self.server.get(JOBS, NAME)
        assert found is not None
        return found

    @property
    def status(self) -> Object:
        """Its status, flat; empty before the first write."""
        found: Object = flat(self.job.get("status") or {})
        return found

    async def until(self, holds: Callable[[Self], bool], *, seconds: float = 600) -> None:
        """Returns when something holds; fails if that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                while not holds(self):
                    await self.server.news.wait()
        except TimeoutError:
            pytest.fail(f"after {seconds} s: {self.status}")

    async def run(self, story: Callable[[Self], object]) -> None:
        """Plays a coroutine function while cluster and operator run."""
        cluster = asyncio.create_task(self.cluster.run())
        self._operator = self._started()
        try:
            await story(self)  # type: ignore[misc]
        finally:
            for part in (cluster, self._operator):
                part.cancel()
            await asyncio.gather(cluster, self._operator, return_exceptions=True)

    async def kill_operator(self) -> None:
        """Ends the operator without a word; `start_operator` starts one that knows nothing."""
        self._operator.cancel()
        await asyncio.gather(self._operator, return_exceptions=True)

    def start_operator(self) -> None:
        """Starts another operator, once the one before is killed."""
        self._operator = self._started()

    def _started(self) -> asyncio.Task[None]:
        running = operator.run(self.server, self.faults, self.defects.append, settings=self._settings)
        return asyncio.create_task(running)

    def play(self, story: Callable[[Self], object]) -> None:
        """Plays it in virtual time, and asks that no promise was broken."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (errors, resync, report_poller):
                patch.setattr(module, "_random", self.random)
            virtual_time.run(self.run(story))
        assert (self.defects, self.promises.broken) == ([], [])
