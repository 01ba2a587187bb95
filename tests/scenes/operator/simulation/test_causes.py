"""What was injected against what was recorded: every end of an attempt is counted once, and under its cause."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count, product
from random import Random

import pytest

from tests.operator.simulation.api import Object, Server
from tests.operator.simulation.cluster import Cluster, is_of_attempt, is_ready
from tests.operator.simulation.promises import JOBS
from tests.operator.simulation.world import NAME, World
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import recorded_between
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.stored import read_status

GANGS = (1, 2, 4)
PAUSES = (0.3, 1.0, 3.0, 10.0)
"""Seconds: of the operator before it restarts, and between an end and what follows from it."""
ATTEMPTS = 200
"""Of each kind of end, over all gangs and pauses."""


class Directed(Cluster):
    """A cluster whose pods end as a test has it, while `is_directed`."""

    is_directed = False
    committed = 0
    spares = count()

    def _run(self, jobset: Object, pods: list[Object]) -> None:
        if not self.is_directed:
            super()._run(jobset, pods)

    def _report(self, pod: Object, code: int) -> str:
        """Some progress now and then, or the job would fail for want of it."""
        return f'\nreport: {{"phase": "stopping", "step": {self.committed}, "committed_step": {self.committed}}}'

    def _free(self, jobset: Object) -> list[str]:
        """Always another machine, so that the job has none to avoid."""
        name = f"node-{next(self.spares)}"
        self.add_node(name)
        return [name]

    async def _follow(self, pods: list[Object], pause: float, code: int = 75) -> None:
        """The Job controller deletes the peers of a failed pod."""
        await asyncio.sleep(pause)
        for pod in pods:
            self.ask(pod)
            await asyncio.sleep(self._random.uniform(0, 1))
            self.end(pod, code)

    async def crash(self, pods: list[Object], pause: float) -> None:
        self.end(pods[0], self._random.choice([1, 137, 139]))
        await self._follow(pods[1:], pause)

    async def unasked(self, pods: list[Object], pause: float) -> None:
        self.end(pods[0], 75)
        await self._follow(pods[1:], pause)

    async def unasked_before_a_crash(self, pods: list[Object], pause: float) -> None:
        """The peers crash of it, after the Job controller has asked them to stop."""
        self.end(pods[0], 75)
        await self._follow(pods[1:], pause, code=1)

    async def deleted(self, pods: list[Object], pause: float) -> None:
        """The others stop with it, at the same step; nobody asks them."""
        self.ask(pods[-1])
        await asyncio.sleep(pause)
        for pod in pods:
            self.end(pod, 75)

    async def deleted_before_a_crash(self, pods: list[Object], pause: float) -> None:
        self.ask(pods[-1])
        await asyncio.sleep(pause)
        for pod in pods:
            self.end(pod, 143 if pod is pods[-1] else 1)

    async def evicted(self, pods: list[Object], pause: float) -> None:
        self.ask(pods[0], marked=True)
        await asyncio.sleep(pause)
        for pod in pods[::-1]:
            self.end(pod, 75)


KINDS: dict[str, tuple[Callable[[Directed, list[Object], float], Coroutine[None, None, None]], Cause]] = {
    "crash": (Directed.crash, Cause.CRASH),
    "code 75 that nobody asked for": (Directed.unasked, Cause.UNEXPLAINED),
    "code 75, its peers crash": (Directed.unasked_before_a_crash, Cause.UNEXPLAINED),
    "deleted": (Directed.deleted, Cause.DISRUPTION),
    "deleted, its peers crash": (Directed.deleted_before_a_crash, Cause.DISRUPTION),
    "evicted": (Directed.evicted, Cause.DISRUPTION),
}


class Ledger:
    """What status says of each restart, in the order in which it was written."""

    def __init__(self, server: Server) -> None:
        self.causes: list[Cause] = []
        server.changed.append(self._look)

    def _look(self, plural: str, before: Object | None, after: Object | None) -> None:
        if plural == JOBS and before is not None and after is not None:
            was, is_now = (read_status(one.get("status")) for one in (before, after))
            if was.incarnation == is_now.incarnation:
                self.causes += recorded_between(was, is_now).elements()


async def play_attempts(world: World, kinds: list[str], pause: float) -> None:
    """One attempt after the other, each ended in one of these ways, each recorded before the next."""
    cluster, ledger = world.cluster, Ledger(world.server)
    assert isinstance(cluster, Directed)
    for number, kind in zip(count(), kinds, strict=False):
        jobset = await _all_running(world, number)
        cluster.is_directed = True
        # Every watch has read it by now, and each looks through all of it at each write.
        del world.server.history[:-100]
        cluster.committed = number // 7
        await KINDS[kind][0](cluster, _pods(world, number), pause)
        cluster.restart(jobset)
        cluster.is_directed = False
        await world.until(lambda world, n=number: len(ledger.causes) > n)  # type: ignore[misc]
        assert (number, kind, ledger.causes[number:]) == (number, kind, [KINDS[kind][1]])


async def _all_running(world: World, attempt: int) -> Object:
    def runs(world: World) -> bool:
        pods = _pods(world, attempt)
        is_complete = bool(pods) and len(pods) == world.status["hosts"] and all(map(is_ready, pods))
        return is_complete and world.status.get("phase") == "Running"

    await world.until(runs, seconds=3600)
    jobset = world.server.get("jobsets", NAME)
    assert jobset is not None
    return jobset


def _pods(world: World, attempt: int) -> list[Object]:
    return [pod for pod in world.server.all("pods") if is_of_attempt(pod, attempt)]


@pytest.mark.parametrize(("gang", "pause"), [*product(GANGS, PAUSES)])
def test_restarts_are_recorded_under_the_cause_that_was_injected(gang: int, pause: float) -> None:
    world = World(settings=Settings(restart_pause_seconds=pause))
    world.cluster = Directed(world.server, world.random, saves=True)
    each = -(-ATTEMPTS // (len(GANGS) * len(PAUSES)))
    kinds = [kind for kind in KINDS for _ in range(each)]
    Random(gang).shuffle(kinds)  # noqa: S311 — to be repeated, not to be secret

    async def story(world: World) -> None:
        world.create_job(accelerator=f"cpu:{gang}x1", restarts={"crashes": 1000})
        await play_attempts(world, kinds, pause)

    world.play(story)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0], ids="after {} s".format)
@pytest.mark.parametrize("is_left", [True, False], ids=["its pod is left", "its pod is gone"])
def test_deletion_of_the_peers_is_no_disruption_for_an_operator_that_was_replaced(
    seconds: float, is_left: bool
) -> None:
    """Killed between exit code 75 that nobody asked for and the peers' deletion, by the Job controller."""
    world = World(seed=3)
    cluster = world.cluster = Directed(world.server, world.random, saves=True)

    async def story(world: World) -> None:
        world.create_job(accelerator="cpu:4x1")
        jobset = await _all_running(world, 0)
        cluster.is_directed = True
        pods = _pods(world, 0)
        cluster.end(pods[0], 75)
        await asyncio.sleep(seconds)
        await world.kill_operator()
        for pod in pods[1:]:
            cluster.ask(pod)
            cluster.end(pod, 143)
        if not is_left:
            world.server.delete("pods", pods[0]["metadata"]["name"])
        world.start_operator()
        cluster.restart(jobset)
        cluster.is_directed = False
        await world.until(lambda world: bool(world.status.get("internal.bookedRestarts")))
        assert (world.status.get("restarts.unexplained"), world.status.get("restarts.disruptions")) == (1, None)

    world.play(story)
