"""How the operator reaches the API server."""

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from tpujob_operator.kube import errors
from tpujob_operator.kube.client import PODS, Storage
from tpujob_operator.kube.requests import PAGE_BYTES, Requests, _decoded, encoded, has_proxy

DEADLINE = 120


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, "https://10.0.0.1:443", False),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://10.0.0.1:443", True),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1"}, "https://10.0.0.1:443", False),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.2"}, "https://10.0.0.1:443", True),
        ({"http_proxy": "http://proxy:3128"}, "https://10.0.0.1:443", False),
    ],
)
def test_the_environment_is_asked_once_whether_a_proxy_is_before_the_api_server(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, expected: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_proxy(url) is expected


@pytest.mark.parametrize("body", [{"seed": 2**70}, {"text": "é"}, {"rate": 1e-5, "none": None}])
def test_every_body_that_json_knows_is_sent(body: dict[str, object]) -> None:
    assert json.loads(encoded(body)) == body


@pytest.mark.parametrize(
    ("status", "data", "kind"),
    [
        (403, b'{"kind": "Status", "code": 403, "reason": "Forbidden"}', errors.Forbidden),
        (410, b'{"code": 0}', errors.Gone),
        (401, b'{"kind": "Status", "code": 401}', errors.Unavailable),
        (429, b'{"kind": "Status", "code": 429}', errors.Unavailable),
        (500, b'{"kind": "Status", "code": 500}', errors.Unavailable),
        (403, b'{"code": "denied", "message": "by the gateway"}', errors.Forbidden),
        (503, b'"no healthy upstream"', errors.Unavailable),
        (503, b"null", errors.Unavailable),
        (502, b"<html>", errors.Unavailable),
        (404, b"404 page not found", errors.NotServed),
        (404, b'["not found"]', errors.NotServed),
        (200, b"[]", errors.Unavailable),
    ],
)
def test_an_answer_that_is_not_the_api_servers_is_an_error_of_ours(
    status: int, data: bytes, kind: type[errors.ApiError]
) -> None:
    with pytest.raises(errors.ApiError) as raised:
        _decoded("get jobsets team/llama", status, data)
    assert type(raised.value) is kind
    assert raised.value.status == status
    assert str(raised.value).startswith(f"get jobsets team/llama: {status}: ")


@pytest.mark.parametrize("sizes", [[3_000_000] * 5, [10] * 900, [10] * 400 + [1_500_000] * 30 + [10] * 400])
async def test_list_is_read_in_pages_that_are_bounded_by_bytes(sizes: list[int]) -> None:
    async def page(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        end = start + limit if start + limit < len(sizes) else None
        items = [{"name": number, "data": "z" * sizes[number]} for number in range(len(sizes))[start:end]]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1", "continue": str(end or "")}})

    application = web.Application()
    application.router.add_get("/api/v1/pods", page)
    async with TestServer(application) as listening:
        configuration = Configuration(host=str(listening.make_url("")).rstrip("/"))
        async with Storage(Requests(ApiClient(configuration))) as storage:
            pages = [page["items"] async for page in storage.pages(PODS, None, "")]
    assert [item["name"] for page in pages for item in page] == list(range(len(sizes)))
    assert all(sum(len(item["data"]) for item in page) <= PAGE_BYTES for page in pages)
    assert len(pages) <= 40


async def test_each_request_has_the_token_of_its_moment_and_closing_leaves_no_connection() -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    tokens = iter(["Bearer first", "Bearer second"])

    def refresh(configuration: Configuration) -> None:
        configuration.api_key["authorization"] = next(tokens)

    async with TestServer(server) as listening:
        configuration = Configuration(host=str(listening.make_url("")).rstrip("/"), api_key={"authorization": ""})
        configuration.refresh_api_key_hook = refresh
        requests = Requests(ApiClient(configuration))
        for _ in range(2):
            await requests.send("GET", PODS, "team")
        session = requests._opened_session()
        await requests.close()
    assert (seen, session.closed) == (["Bearer first", "Bearer second"], True)


async def test_watches_of_many_namespaces_leave_connections_to_other_requests() -> None:
    """An operator for 60 namespaces has 120 watches open; more than the connections that aiohttp allows by default."""
    number, opened = 120, asyncio.Semaphore(0)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({})
        response = web.StreamResponse()
        await response.prepare(request)
        opened.release()
        await asyncio.Event().wait()
        return response

    async def follow(requests: Requests) -> None:
        async for _ in requests.watch(PODS, "team", selector="", version="1"):
            pass

    server = web.Application()
    server.router.add_get("/{path:.*}", answer)
    async with TestServer(server) as listening, asyncio.timeout(DEADLINE):
        requests = Requests(ApiClient(Configuration(host=str(listening.make_url("")).rstrip("/"))))
        watches = [asyncio.create_task(follow(requests)) for _ in range(number)]
        for _ in range(number):
            await opened.acquire()
        await requests.send("GET", PODS, "team", "llama-0")
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await requests.close()
