"""Whoever is elected is told so each time, also when nobody else led in between."""

import asyncio
import itertools
from collections.abc import Callable
from typing import cast

import pytest

from tpujob_operator.base.settings import Settings
from tpujob_operator.controller import leader_election
from tpujob_operator.controller.leader_election import OFFER_SECONDS, SURE_SECONDS, Leadership
from tpujob_operator.kube.client import LEASES, Storage
from tpujob_operator.kube.requests import Object, Resource


class Lease:
    """One Lease, and a clock that stands while nobody moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written = asyncio.Event()
        self._kept: Object | None = None
        self._versions = itertools.count(1)
        self.on_write: Callable[[], None] = lambda: None

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        await asyncio.sleep(0)
        return self._kept

    async def create(self, resource: Resource, lease: Object) -> None:
        await self.replace(resource, lease)

    async def replace(self, resource: Resource, lease: Object) -> None:
        assert resource == LEASES
        self.on_write()
        self.written.set()
        self._kept = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(next(self._versions))}}


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Lease:
    monkeypatch.setattr(leader_election, "RETRY_SECONDS", 0)
    return Lease()


async def elections(lease: Lease, *moves: Callable[[], None]) -> int:
    """How often the one candidate was elected; each move follows two renewals."""
    elected = 0

    def note() -> None:
        nonlocal elected
        elected += 1

    leadership = Leadership(cast("Storage", lease), Settings(identity="one"), clock=lambda: lease.now)
    running = asyncio.create_task(leadership.run(note))
    for move in (*moves, lambda: None):
        for _ in range(2):
            lease.written.clear()
            await lease.written.wait()
        move()
    running.cancel()
    await asyncio.wait([running])
    return elected


async def test_leader_that_renews_in_time_is_elected_once(lease: Lease) -> None:
    def pass_some_time() -> None:
        lease.now += SURE_SECONDS / 2

    assert await elections(lease, *[pass_some_time] * 5) == 1


async def test_leader_that_was_not_sure_for_a_while_is_elected_again(lease: Lease) -> None:
    """It was paused: what it was asked to do before it renewed was passed over."""

    def pause() -> None:
        lease.now += SURE_SECONDS + 1

    assert await elections(lease, pause, pause) == 3


async def test_leader_whose_renewal_took_long_is_elected_again(lease: Lease) -> None:
    """It was sure when it asked, and again when it was answered, and not in between."""

    def answer_late() -> None:
        lease.now += 2
        lease.on_write = lambda: None

    def delay_the_next_answer() -> None:
        lease.now += SURE_SECONDS - 1
        lease.on_write = answer_late

    assert await elections(lease, delay_the_next_answer) == 2


async def test_process_that_was_killed_and_started_again_offers_the_lease_first(lease: Lease) -> None:
    """Another one has watched all the time, and knows how pods ended that are gone."""

    def candidate(identity: str) -> Leadership:
        return Leadership(cast("Storage", lease), Settings(identity=identity), clock=lambda: lease.now)

    first, standby, again = candidate("one"), candidate("two"), candidate("one")
    for each in (first, standby, again, again):
        await each.step()
    assert [each.is_leader for each in (first, standby, again)] == [True, False, False]
    await standby.step()
    await again.step()
    assert (standby.is_leader, again.is_leader) == (True, False)


async def test_process_that_was_killed_and_started_again_goes_on_where_it_is_alone(lease: Lease) -> None:
    first, again = (
        Leadership(cast("Storage", lease), Settings(identity="one"), clock=lambda: lease.now) for _ in range(2)
    )
    await first.step()
    await again.step()
    assert not again.is_leader
    lease.now += OFFER_SECONDS
    await again.step()
    assert again.is_leader
