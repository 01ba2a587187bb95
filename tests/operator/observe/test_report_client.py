"""Reports are asked for over real HTTP, and believed in no further than they make sense."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.operator.building import host
from tpujob_operator.observe.in_place import InPlaceAccount
from tpujob_operator.observe.report import Progress, progress_from_report
from tpujob_operator.observe.report_poller import NOT_REPORTED, ask, ask_both, report_url
from tpujob_operator.observe.state import Host
from tpujob_resource.models.restart_causes import Cause


class Server:
    """Answers as it is told, and counts."""

    def __init__(self) -> None:
        self.answer: Any = {"phase": "training", "step": 3}
        self.of_launcher: Any = None
        self.asked = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        answer = self.of_launcher if request.path == "/in-place" else self.answer
        if isinstance(answer, list) and all(isinstance(piece, bytes) for piece in answer):
            return await self._in_pieces(request)
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, text=answer.text, headers=answer.headers)
        return web.json_response(answer)

    async def _in_pieces(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in self.answer:
            await response.write(piece)
            # Long enough for the piece to be read on its own.
            await asyncio.sleep(0.05)
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    app = web.Application()
    app.router.add_get("/report", served.handle)
    app.router.add_get("/in-place", served.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/report"
    yield served
    await runner.cleanup()


async def asked(url: str) -> Progress | None:
    async with aiohttp.ClientSession() as session:
        return await ask(session, url)


async def test_report_is_read(server: Server) -> None:
    assert await asked(server.url) == Progress(phase="training", step=3)


async def test_report_may_come_in_pieces(server: Server) -> None:
    server.answer = [b'{"phase": "training", ', b'"step": 3}']
    assert await asked(server.url) == Progress(phase="training", step=3)


OWN = {"phase": "training", "step": 3}
TOLD = {"in_place_restarts": 2, "in_place_cause": "a crash", "in_place": {"counts": {"crash": 2}}}
IN_PLACE = InPlaceAccount(counts={Cause.CRASH: 2})
OF_LAUNCHER: dict[str, Any] = {"in_place_restarts": 2, "in_place_cause": "a crash", "in_place": IN_PLACE}
NOTHING = web.Response(status=404)


@pytest.mark.parametrize(
    ("report", "told", "expected"),
    [
        (OWN, TOLD, Progress(phase="training", step=3, **OF_LAUNCHER)),
        (NOTHING, TOLD, Progress(phase=NOT_REPORTED, **OF_LAUNCHER)),
        (OWN, NOTHING, Progress(phase="training", step=3)),
        (NOTHING, NOTHING, None),
        (OWN | TOLD, TOLD | {"in_place_restarts": 3}, Progress(phase="training", step=3, **OF_LAUNCHER)),
        (NOTHING, {"step": 10**6, "phase": "training"}, Progress(phase=NOT_REPORTED)),
    ],
    ids=["both", "no report", "no launcher", "neither", "the report tells it", "a launcher tells nothing else"],
)
async def test_launcher_tells_of_restarts_in_place(
    server: Server, report: Any, told: Any, expected: Progress | None
) -> None:
    server.answer, server.of_launcher = report, told
    async with aiohttp.ClientSession() as session:
        found = await ask_both(session, server.url, server.url.replace("/report", "/in-place"))
        assert found == expected
        assert await ask_both(session, server.url, None) == await ask(session, server.url)


async def test_launcher_is_asked_only_where_the_report_does_not_tell(server: Server) -> None:
    server.answer = OWN | TOLD
    async with aiohttp.ClientSession() as session:
        await ask_both(session, server.url, server.url.replace("/report", "/in-place"))
    assert server.asked == 1


UNUSABLE = {
    "not JSON": web.Response(text="<html>"),
    "no object": [1, 2],
    "error": web.Response(status=500),
    "elsewhere": web.Response(status=302, headers={"Location": "/report"}),
    "endless": {"phase": "x" * 100_000},
    "endless, in pieces": [b"[" * 40_000, b"[" * 40_000],
    "deep": [b"[" * 60_000],
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_unusable_answer_is_no_report(server: Server, answer: Any) -> None:
    server.answer = answer
    assert await asked(server.url) is None
    assert server.asked == 1


async def test_silent_host_is_no_report() -> None:
    assert await asked("http://127.0.0.1:1/report") is None


@pytest.mark.parametrize(
    ("found", "url"),
    [
        (host(0), None),
        (host(0, ip="10.1.2.3"), "http://10.1.2.3:9432/report"),
        (host(0, ip="fd00::1"), "http://[fd00::1]:9432/report"),
    ],
)
def test_address_becomes_a_url(found: Host, url: str | None) -> None:
    assert report_url(found) == url


SENSE = {
    "whole": (
        {
            "phase": "saving",
            "step": 5,
            "steps": 10,
            "loss": 1.5,
            "tokens_per_second": 99.5,
            "committed_step": 4,
            "committed_time": 1.7e9,
            "message": "m",
        },
        Progress(
            phase="saving",
            step=5,
            steps=10,
            loss=1.5,
            tokens_per_second=99.5,
            committed_step=4,
            committed_at=datetime.fromtimestamp(1.7e9, UTC),
            message="m",
        ),
    ),
    "empty": ({}, Progress(phase="")),
    "nothing yet": ({"phase": "starting", "step": None, "loss": None}, Progress(phase="starting")),
    "not finite": ({"loss": float("nan"), "tokens_per_second": float("inf")}, Progress(phase="")),
    "wrong types": ({"step": "5", "steps": True, "loss": [1], "committed_time": "now"}, Progress(phase="")),
    "out of range": ({"step": -1, "steps": 1e300, "committed_time": 1e18}, Progress(phase="")),
}


@pytest.mark.parametrize(("report", "progress"), SENSE.values(), ids=SENSE.keys())
def test_only_what_makes_sense_is_taken(report: dict, progress: Progress) -> None:
    assert progress_from_report(report) == progress
