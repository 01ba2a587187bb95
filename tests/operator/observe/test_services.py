"""How often the Service of a job is read, and what follows from a right that is missing."""

import asyncio
import logging
from typing import Any, cast

import pytest

from tests.operator.building import JOBSET_UID, jobset
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import SERVICES, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.services import ServiceReader

KEY = ("team", "llama")
OURS = {"metadata": {"ownerReferences": [{"uid": JOBSET_UID}]}}
FOREIGN: dict[str, Any] = {"metadata": {}}


class Services:
    """An API server with at most one Service, that counts who asks for it."""

    def __init__(self, found: dict[str, Any] | errors.ApiError | None) -> None:
        self.found = found
        self.reads = 0

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        assert (resource, namespace, name) == (SERVICES, "team", "llama-tpujob")
        self.reads += 1
        if isinstance(self.found, errors.ApiError):
            raise self.found
        return self.found


def reader(services: Services, interval: float = 300) -> ServiceReader:
    return ServiceReader(cast("Storage", services), interval_seconds=interval)


# what there is, whether the JobSet is suspended, whether the job runs: reads of three looks, what is said
LOOKS: dict[str, tuple[Any, bool, bool, int, str | None]] = {
    "ours": (OURS, False, False, 1, None),
    "ours, suspended": (OURS, True, False, 1, None),
    "none, suspended": (None, True, False, 3, None),
    "none, starting": (None, False, False, 1, None),
    "none, running": (None, False, True, 1, None),
    "foreign, suspended": (FOREIGN, True, False, 3, "llama-tpujob"),
    "foreign, starting": (FOREIGN, False, False, 3, "llama-tpujob"),
    "foreign, running": (FOREIGN, False, True, 1, "llama-tpujob"),
    "forbidden, suspended": (errors.Forbidden("get", 403, "no"), True, False, 1, None),
    "forbidden, running": (errors.Forbidden("get", 403, "no"), False, True, 1, None),
}


@pytest.mark.parametrize("name", LOOKS)
def test_service_is_read_no_more_than_needed(name: str) -> None:
    found, suspended, is_running, reads, foreign = LOOKS[name]
    services = Services(found)

    async def look() -> list[str | None]:
        read = reader(services)
        return [await read.foreign(KEY, jobset(suspended=suspended), is_running=is_running) for _ in range(3)]

    assert asyncio.run(look()) == [foreign] * 3
    assert services.reads == reads


def test_another_jobset_is_looked_at_anew() -> None:
    services = Services(OURS)

    async def look() -> tuple[str | None, str | None]:
        read = reader(services)
        first = await read.foreign(KEY, jobset(), is_running=True)
        return first, await read.foreign(KEY, jobset(uid="another"), is_running=True)

    assert asyncio.run(look()) == (None, "llama-tpujob")


def test_missing_right_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    services = Services(errors.Forbidden("get services team/llama-tpujob", 403, "not allowed"))

    async def look() -> None:
        read = reader(services, interval=0)
        for _ in range(3):
            assert await read.foreign(KEY, jobset(), is_running=True) is None

    with caplog.at_level(logging.WARNING):
        asyncio.run(look())
    assert services.reads == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "install the chart of this version" in caplog.text


def test_other_errors_end_the_look() -> None:
    services = Services(errors.Unavailable("get", 503, "away"))

    async def look() -> None:
        await reader(services).foreign(KEY, jobset(), is_running=True)

    with pytest.raises(errors.Unavailable):
        asyncio.run(look())
