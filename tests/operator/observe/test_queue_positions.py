"""The order of a queue, as Kueue tells it: how often it is read, and what is made of it."""

import asyncio
from typing import Any, cast

import pytest

from tpujob_operator.kube import errors
from tpujob_operator.kube.client import LOCAL_QUEUES, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.queue_positions import MOST_LISTED, QueuePositions
from tpujob_operator.observe.state import QueuePosition


def pending(name: str, ahead: int, ahead_in_queue: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "positionInClusterQueue": ahead, "positionInLocalQueue": ahead_in_queue}


class Queue:
    """A Kueue that tells of one queue what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, int]] = []

    async def get(
        self, resource: Resource, namespace: str, queue: str, subresource: str, *, query: dict[str, str]
    ) -> dict[str, Any] | None:
        assert (resource.plural, subresource) == ("localqueues", "pendingworkloads")
        if resource == LOCAL_QUEUES[0]:
            self.asked.append((namespace, queue, int(query["limit"])))
        await asyncio.sleep(0)
        if isinstance(self.answer, errors.ApiError):
            raise self.answer
        return None if self.answer is None else {"items": self.answer}


def positions(queue: Queue, *names: str) -> list[QueuePosition | None]:
    """Where these stand, all of them asked for at once."""

    async def ask() -> list[QueuePosition | None]:
        reader = QueuePositions(cast("Storage", queue))
        return await asyncio.gather(*(reader.of("team", "a", name) for name in names))

    return asyncio.run(ask())


def test_one_list_serves_all_jobs_of_a_queue() -> None:
    queue = Queue([pending("first", 3, 0), pending("second", 5, 1)])
    first, second = QueuePosition(ahead=3, ahead_in_queue=0), QueuePosition(ahead=5, ahead_in_queue=1)
    assert positions(queue, "second", "first", "gone") == [second, first, None]
    assert queue.asked == [("team", "a", MOST_LISTED)]


def test_who_is_not_in_a_full_list_is_behind_it() -> None:
    queue = Queue([pending(str(index), 2 * index, index) for index in range(MOST_LISTED)])
    assert positions(queue, "late") == [QueuePosition(ahead=1999, ahead_in_queue=1000)]


@pytest.mark.parametrize(
    "answer",
    [None, errors.Forbidden("get", 403, "no"), errors.Unavailable("get", 503, "no endpoints")],
    ids=["not served", "no right", "not available"],
)
def test_missing_order_is_asked_for_once_and_harms_nobody(answer: Any) -> None:
    queue = Queue(answer)
    assert positions(queue, "first", "second") == [None, None]
    assert len(queue.asked) == 1
