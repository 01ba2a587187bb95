"""Who is looked at when."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.kube.backoff import backoff_seconds

DEADLINE = 120


@asynccontextmanager
async def running(
    handle: Callable[[str], Awaitable[float | None]], *, workers: int = 8
) -> AsyncIterator[WorkQueue[str]]:
    queue: WorkQueue[str] = WorkQueue(handle, workers=workers)
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(DEADLINE):
            yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Gate:
    """A handler that waits to be let through, and knows who is inside."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.open = asyncio.Semaphore(0)
        self.inside: list[str] = []
        self.most = 0

    async def __call__(self, key: str) -> None:
        assert key not in self.inside
        self.inside.append(key)
        self.most = max(self.most, len(self.inside))
        self.entered.put_nowait(key)
        await self.open.acquire()
        self.inside.remove(key)


async def test_requests_while_waiting_are_one_run() -> None:
    gate = Gate()
    async with running(gate, workers=1) as queue:
        queue.add("blocker")
        await gate.entered.get()
        for _ in range(5):
            queue.add("a")
        queue.add("b")
        for _ in range(3):
            gate.open.release()
        assert [await gate.entered.get(), await gate.entered.get()] == ["a", "b"]
    assert gate.entered.empty()


async def test_groups_take_turns_so_that_a_burst_in_one_does_not_hold_up_another() -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if len(handled) == 1003:
            done.set()

    queue: WorkQueue[str] = WorkQueue(handle, workers=1, group=lambda key: key.partition("/")[0])
    for number in range(1000):
        queue.add(f"burst/{number}")
    for key in ("small/0", "small/1", "third/0"):
        queue.add(key)
    task = asyncio.create_task(queue.run())
    async with asyncio.timeout(DEADLINE):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert handled[:6] == ["burst/0", "small/0", "third/0", "burst/1", "small/1", "burst/2"]
    assert handled[-1] == "burst/999"


async def test_requests_that_an_earlier_one_took_over_cost_their_group_no_turn() -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        if key == "b/6":
            done.set()

    queue: WorkQueue[str] = WorkQueue(handle, workers=1, group=lambda key: key.partition("/")[0])
    for number in range(5):
        queue.add(f"a/{number}", -1)
        queue.add(f"a/{number}", -2)
    queue.add("a/new")
    for number in range(7):
        queue.add(f"b/{number}")
    task = asyncio.create_task(queue.run())
    async with asyncio.timeout(DEADLINE):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert handled.index("a/new") == handled.index("b/5") - 1


async def test_request_during_a_run_makes_one_more() -> None:
    gate = Gate()
    async with running(gate) as queue:
        queue.add("a")
        await gate.entered.get()
        queue.add("a")
        queue.add("a")
        queue.add("b")  # b passes a, which is blocked by itself
        assert await gate.entered.get() == "b"
        gate.open.release()
        gate.open.release()
        assert await gate.entered.get() == "a"
        gate.open.release()
    assert gate.entered.empty()


async def test_keys_run_side_by_side_up_to_the_limit() -> None:
    gate = Gate()
    async with running(gate, workers=3) as queue:
        for key in "abcdef":
            queue.add(key)
        for _ in range(3):
            await gate.entered.get()
        for _ in range(6):
            gate.open.release()
        for _ in range(3):
            await gate.entered.get()
    assert gate.most == 3


async def test_sooner_request_wins_and_counts_once() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def handle(key: str) -> None:
        seen.put_nowait(key)

    async with running(handle) as queue:
        queue.add("a", 3600)
        queue.add("a", 0.01)
        queue.add("a", 1800)
        assert await seen.get() == "a"
        queue.add("end", 0.05)
        assert await seen.get() == "end"


async def test_handler_says_when_it_comes_again() -> None:
    calls: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> float | None:
        calls.append(key)
        if len(calls) == 3:
            done.set()
            return None
        return 0.001

    async with running(handle) as queue:
        queue.add("a")
        await done.wait()
    assert calls == ["a", "a", "a"]


async def test_defect_delays_its_key_only(caplog: pytest.LogCaptureFixture) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def handle(key: str) -> None:
        seen.put_nowait(key)
        if key == "bad":
            raise RuntimeError("a defect")

    with caplog.at_level(logging.CRITICAL):
        async with running(handle) as queue:
            queue.add("bad")
            queue.add("good")
            assert {await seen.get(), await seen.get()} == {"bad", "good"}
            assert await seen.get() == "bad"  # again, after its delay


@pytest.mark.parametrize(
    ("failures", "least", "most"), [(1, 0.25, 0.75), (2, 0.5, 1.5), (5, 4, 12), (11, 150, 450), (1000, 150, 450)]
)
def test_delay_doubles_to_a_limit(failures: int, least: float, most: float) -> None:
    delays = [backoff_seconds(failures) for _ in range(50)]
    assert least <= min(delays) < max(delays) <= most
