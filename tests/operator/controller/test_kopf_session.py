"""What kopf is given of a job: nothing that its parser could end at."""

import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tpujob_operator.controller.kopf_session import KopfSession, job_of
from tpujob_resource.models.decoding import UNREADABLE

JOBS = "/apis/tpujob.dev/v1beta1/tputrainingjobs"
ARGUMENTS = {
    "plain": '{"a":1}',
    **{f"{levels} levels": '{"a":' * levels + "1" + "}" * levels for levels in (1_100, 3_000, 9_000)},
    "1.2 MB": '{"a":"' + "z" * 1_200_000 + '"}',
}


def event(arguments: str) -> str:
    metadata = '{"name":"llama","namespace":"team","uid":"u","resourceVersion":"7","annotations":{"a":"b"}}'
    return f'{{"type":"ADDED","object":{{"metadata":{metadata},"spec":{{"trainer":{{"model":{arguments}}}}}}}}}\n'


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_event_of_any_job_is_read_and_the_next_one_comes(arguments: str) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}

    async def watch(_: web.Request) -> web.Response:
        return web.Response(text=f"{event(arguments)}{json.dumps(bookmark)}\n")

    application = web.Application()
    application.router.add_get(JOBS, watch)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        ours = KopfSession(session, list_jobs=None)  # type: ignore[arg-type]  # a watch lists nothing
        async with await ours.request(method="get", url=f"{server.make_url(JOBS)}?watch=true") as response:
            told, after = [json.loads(line) async for line in response.content.iter_chunked(1)]
    assert after == bookmark
    metadata = {"namespace": "team", "name": "llama", "uid": "u", "resourceVersion": "7"}
    assert told["object"].keys() == {"apiVersion", "kind", "metadata", "job"}
    job = job_of(told)
    assert told["object"]["metadata"] == job["metadata"] == metadata
    assert (UNREADABLE in job) is (arguments != ARGUMENTS["plain"])


@pytest.mark.parametrize("namespace", [None, "team"])
async def test_list_is_the_operators_own(namespace: str | None) -> None:
    path = JOBS.replace("v1beta1", f"v1beta1/namespaces/{namespace}") if namespace else JOBS
    listed: list[Any] = []

    async def list_jobs(of: str | None) -> str:
        listed.append(of)
        return "12"

    async with aiohttp.ClientSession() as session:
        ours = KopfSession(session, list_jobs)
        async with await ours.request(method="get", url=f"http://127.0.0.1:1{path}?limit=500") as response:
            assert await response.json() == {"items": [], "metadata": {"resourceVersion": "12"}}
    assert listed == [namespace]
