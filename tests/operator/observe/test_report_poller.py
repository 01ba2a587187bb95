"""Who is asked when, over real HTTP; and that one who does not answer holds up nobody."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.operator.building import host
from tpujob_operator.controller.fair_queue import FairQueue
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.state import Host
from tpujob_operator.observe.terminations import Key

DEADLINE = 120
SOON, LATER = 0.01, 3600.0


class Pods:
    """Answers for all pods: a report with the step that is set, an error, or nothing at all."""

    def __init__(self) -> None:
        self.step = 0
        self.silent: set[str] = set()
        self.failing: set[str] = set()
        self.asked: dict[str, int] = {}
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        pod = request.match_info["pod"]
        self.asked[pod] = self.asked.get(pod, 0) + 1
        if pod in self.silent:
            await asyncio.sleep(DEADLINE)
        if pod in self.failing:
            return web.Response(status=500)
        return web.json_response({"phase": "training", "step": self.step, "goodput": {"steps": self.asked[pod]}})

    def url_of(self, of: Host) -> str | None:
        return f"{self.url}/{of.pod}"

    def launcher_of(self, of: Host) -> str | None:
        return f"{self.url}/launcher-of-{of.pod}"


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    served = Pods()
    app = web.Application()
    app.router.add_get("/{pod}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


@asynccontextmanager
async def polling(pods: Pods, news: Callable[[Key], None] = lambda _: None) -> AsyncIterator[ReportPoller]:
    async with aiohttp.ClientSession() as session, asyncio.timeout(DEADLINE):
        add: Callable[[Key, float], None] = lambda key, after: queue.add(key, after)  # noqa: E731
        poller = ReportPoller(session, news=news, add=add, url=pods.url_of, of_launcher=pods.launcher_of)
        queue = WorkQueue(poller.poll, FairQueue[Key](group=lambda key: key[0], places=8, share=4))
        task = asyncio.create_task(queue.run())
        try:
            yield poller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 — neither the server nor the poller has an event for it
        await asyncio.sleep(0.005)


def key(name: str) -> Key:
    return ("team", name)


async def test_first_answer_is_news_and_then_at_hand(pods: Pods) -> None:
    told: asyncio.Queue[Key] = asyncio.Queue()
    async with polling(pods, told.put_nowait) as poller:
        assert poller.follow(key("a"), host(0, pod="a"), interval=LATER) is None
        assert await told.get() == key("a")
        found = poller.follow(key("a"), host(0, pod="a"), interval=LATER)
    assert found == Progress(phase="training", step=0, goodput={"steps": 1})
    assert pods.asked == {"a": 1}


@pytest.mark.parametrize("asks_launcher", [False, True])
async def test_launcher_is_asked_of_jobs_in_which_it_tells(pods: Pods, asks_launcher: bool) -> None:
    pods.failing = {"a"}
    async with polling(pods) as poller:
        poller.follow(key("a"), host(0, pod="a"), interval=SOON, asks_launcher=asks_launcher)
        await until(lambda: pods.asked.get("a", 0) >= 3)
        found = poller.follow(key("a"), host(0, pod="a"), interval=SOON, asks_launcher=asks_launcher)
    assert ("launcher-of-a" in pods.asked) == asks_launcher == (found is not None)


async def test_same_report_again_is_no_news(pods: Pods) -> None:
    told: list[Key] = []
    async with polling(pods, told.append) as poller:
        poller.follow(key("a"), host(0, pod="a"), interval=SOON)
        await until(lambda: pods.asked.get("a", 0) >= 4)
        assert told == [key("a")]
        pods.step = 1
        await until(lambda: len(told) == 2)


async def test_silent_pods_hold_up_no_other_namespace(pods: Pods) -> None:
    pods.silent = {f"s{number}" for number in range(20)}
    async with polling(pods) as poller:
        for name in pods.silent:
            poller.follow(("silent", name), host(0, pod=name), interval=SOON)
        await until(lambda: len(pods.asked) == 4)
        poller.follow(key("a"), host(0, pod="a"), interval=SOON)
        await until(lambda: pods.asked.get("a", 0) >= 10)
        assert sum(pods.asked[name] for name in pods.silent & pods.asked.keys()) == 4


async def test_failing_pod_is_asked_less_and_less(pods: Pods) -> None:
    pods.failing = {"bad"}
    async with polling(pods) as poller:
        for name in ("bad", "good"):
            poller.follow(key(name), host(0, pod=name), interval=0.02)
        await until(lambda: pods.asked.get("good", 0) >= 40)
        assert poller.follow(key("bad"), host(0, pod="bad"), interval=0.02) is None
    assert 2 <= pods.asked["bad"] <= 20


async def test_new_pod_is_asked_at_once_and_the_old_answer_forgotten(pods: Pods) -> None:
    async with polling(pods) as poller:
        poller.follow(key("a"), host(0, pod="old"), interval=LATER)
        await until(lambda: poller.follow(key("a"), host(0, pod="old"), interval=LATER))
        assert poller.follow(key("a"), host(0, pod="new"), interval=LATER) is None
        await until(lambda: poller.follow(key("a"), host(0, pod="new"), interval=LATER))


async def test_shorter_interval_counts_at_once(pods: Pods) -> None:
    async with polling(pods) as poller:
        poller.follow(key("a"), host(0, pod="a"), interval=LATER)
        await until(lambda: pods.asked.get("a"))
        poller.follow(key("a"), host(0, pod="a"), interval=SOON)
        await until(lambda: pods.asked["a"] >= 3)


async def test_forgotten_job_is_not_asked(pods: Pods) -> None:
    async with polling(pods) as poller:
        poller.follow(key("a"), host(0, pod="a"), interval=SOON)
        await until(lambda: pods.asked.get("a"))
        poller.forget(key("a"))
        before = pods.asked["a"]
        poller.follow(key("b"), host(0, pod="b"), interval=SOON)
        await until(lambda: pods.asked.get("b", 0) >= 10)
    assert pods.asked["a"] <= before + 1


async def test_host_without_address_is_not_asked() -> None:
    async with aiohttp.ClientSession() as session:
        poller = ReportPoller(session, news=lambda _: None, add=lambda *_: None)
        assert poller.follow(key("a"), host(0), interval=SOON) is None
        assert poller._polled == {}


async def test_an_error_of_one_poll_does_not_end_the_others(pods: Pods, caplog: pytest.LogCaptureFixture) -> None:
    async with polling(pods) as poller:
        await poller._session.close()  # no error of a pod
        poller.follow(key("a"), host(0, pod="a"), interval=SOON)
        await until(lambda: poller._polled[key("a")].failures >= 2)
    assert "team/a: its report cannot be handled" in caplog.text
