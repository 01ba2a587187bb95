"""Whether a watch that has gone silent is noticed, and a quiet cluster is not taken for one."""

import aiohttp
import pytest

from tests.fakes import Clock
from tpujob_operator.controller.http import SLACK_SECONDS, health_pages, listening
from tpujob_operator.controller.watch_staleness import ALLOWED_SECONDS, WatchStaleness

JOBS = "tputrainingjobs"


def job(version: int, name: str = "llama") -> dict:
    return {"metadata": {"namespace": "team", "name": name, "resourceVersion": str(version)}}


@pytest.fixture
def staleness(clock: Clock) -> WatchStaleness:
    return WatchStaleness(clock)


def test_quiet_cluster_is_fresh(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_watched(JOBS, job(1))
    for _ in range(5):
        clock.now += 300
        staleness.note_listed(JOBS, [job(1)])
    assert staleness.seconds_behind() == 0


def test_change_that_was_not_shown_is_counted_from_the_list(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_watched(JOBS, job(1))
    staleness.note_listed(JOBS, [job(2)])
    clock.now += 50
    staleness.note_listed(JOBS, [job(3)])
    clock.now += 50
    assert staleness.seconds_behind() == 100


@pytest.mark.parametrize("version", [2, 3], ids=["the listed one", "a later one"])
def test_anything_shown_later_proves_the_watch(staleness: WatchStaleness, clock: Clock, version: int) -> None:
    staleness.note_listed(JOBS, [job(2)])
    clock.now += 50
    staleness.note_watched(JOBS, job(version))
    assert staleness.seconds_behind() == 0


def test_deleted_objects_are_forgotten(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_listed(JOBS, [job(2)])
    staleness.note_listed(JOBS, [])
    clock.now += 50
    assert staleness.seconds_behind() == 0


def test_list_that_was_begun_before_a_deletion_raises_no_alarm(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_watched(JOBS, job(2))
    staleness.note_watched(JOBS, job(3))  # its deletion, told while the list is read
    staleness.note_listed(JOBS, [job(2)])
    clock.now += 50
    assert staleness.seconds_behind() == 0


def test_older_version_told_late_takes_nothing_back(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_watched(JOBS, job(3))
    staleness.note_watched(JOBS, job(2))  # from a list that was begun before
    staleness.note_listed(JOBS, [job(3)])
    clock.now += 50
    assert staleness.seconds_behind() == 0


def test_another_object_of_a_deleted_ones_name_has_to_be_shown(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_watched(JOBS, job(3))  # the deletion of the first
    staleness.note_listed(JOBS, [job(4)])
    clock.now += 50
    assert staleness.seconds_behind() == 50


def test_other_resources_are_not_touched(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_listed(JOBS, [job(2)])
    staleness.note_listed("jobsets", [])
    clock.now += 50
    assert staleness.seconds_behind() == 50


async def probe(staleness: WatchStaleness, path: str, *namespaces: str) -> tuple[int, str]:
    pages = health_pages(staleness, resync_seconds=300, namespaces=namespaces)
    async with listening(pages, 0, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{server.port}{path}")
        return answer.status, await answer.text()


async def test_not_ready_before_the_first_list(staleness: WatchStaleness) -> None:
    assert await probe(staleness, "/readyz") == (503, "nothing listed yet\n")
    assert (await probe(staleness, "/healthz"))[0] == 200


async def test_not_ready_when_the_lists_are_old(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_listed(JOBS, [])
    assert (await probe(staleness, "/readyz"))[0] == 200
    clock.now += 600 + SLACK_SECONDS + 1
    assert (await probe(staleness, "/readyz"))[0] == 503
    # The API server is away; a restart of ours would not bring it back.
    assert (await probe(staleness, "/healthz"))[0] == 200


async def test_dead_watch_fails_liveness(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_listed(JOBS, [job(1)])
    clock.now += ALLOWED_SECONDS
    assert (await probe(staleness, "/healthz"))[0] == 200
    clock.now += 1
    status, text = await probe(staleness, "/healthz")
    assert status == 503
    assert "behind" in text


async def test_namespace_that_cannot_be_listed_is_named(staleness: WatchStaleness) -> None:
    staleness.note_listed(JOBS, [], "team")
    staleness.note_list_failed("closed", "get tputrainingjobs closed/: 403: no rights")
    assert await probe(staleness, "/readyz", "team") == (200, "ok\n")
    expected = "namespace closed: nothing listed yet: get tputrainingjobs closed/: 403: no rights\n"
    assert await probe(staleness, "/readyz", "team", "closed") == (503, expected)


def test_list_of_one_namespace_says_nothing_about_another(staleness: WatchStaleness, clock: Clock) -> None:
    staleness.note_listed(JOBS, [job(2)], "team")
    staleness.note_listed(JOBS, [], "other")
    clock.now += 50
    assert staleness.seconds_behind() == 50
