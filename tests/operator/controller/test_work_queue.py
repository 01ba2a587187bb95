"""Who is looked at when."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tpujob_operator.controller.fair_queue import FairQueue
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.kube.errors import backoff_seconds

DEADLINE = 120


@asynccontextmanager
async def running(
    handle: Callable[[str], Awaitable[float | None]], *, workers: int = 8
) -> AsyncIterator[WorkQueue[str]]:
    queue = WorkQueue(handle, FairQueue[str](group=lambda _: None, places=workers, share=workers))
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


async def test_time_in_the_queue_is_that_from_when_a_key_is_due() -> None:
    waited: list[float] = []
    gate = Gate()
    gate.open.release()
    queue = WorkQueue(gate, FairQueue[str](group=lambda _: None, places=1, share=1), waited=waited.append)
    queue.add("late", -7)
    task = asyncio.create_task(queue.run())
    async with asyncio.timeout(DEADLINE):
        assert await gate.entered.get() == "late"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 7 <= waited[0] < 7 + DEADLINE
    assert len(waited) == 1


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


async def test_key_that_asks_at_once_keeps_its_place_for_a_few_runs() -> None:
    calls: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> float | None:
        calls.append(key)
        if len(calls) == 6:
            done.set()
        return 0 if key == "a" else None

    async with running(handle, workers=1) as queue:
        queue.add("a")
        queue.add("b")
        queue.add("c")
        await done.wait()
    assert calls[:6] == ["a", "a", "a", "b", "c", "a"]


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
