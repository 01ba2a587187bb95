"""A request to stop is seen at the same look by all, however far apart they are."""

import pytest

from tests.key_values import KeyValuesOfOne
from tpujob_sdk import stopping
from tpujob_sdk.stopping import AgreedStop
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.values.errors import TrainerError


def agreed(processes: int) -> tuple[list[StopRequest], list[AgreedStop]]:
    store = KeyValuesOfOne(processes)
    requests = [StopRequest(grace_seconds=30) for _ in range(processes)]
    hosts = [f"h{i}" for i in range(processes)]
    talks = [Coordination(store, process_id=i, hosts=hosts) for i in range(processes)]
    return requests, [AgreedStop(request, talk) for request, talk in zip(requests, talks, strict=True)]


@pytest.mark.parametrize("looks", [(0, 0), (3, 4), (5, 0), (7, 7)], ids=str)
def test_all_stop_after_the_highest_count(monkeypatch: pytest.MonkeyPatch, looks: tuple[int, ...]) -> None:
    monkeypatch.setattr(stopping, "POLL_SECONDS", 0.02)
    requests, stops = agreed(len(looks))
    for stop, count in zip(stops, looks, strict=True):
        assert [stop.look() for _ in range(count)] == [False] * count
    requests[-1].request()
    for stop in stops:
        with stop._changed:
            assert stop._changed.wait_for(lambda stop=stop: stop._at is not None, 300)  # type: ignore[misc]
    for stop, count in zip(stops, looks, strict=True):
        rest = max(looks) - count
        assert [stop.look() for _ in range(rest + 1)] == [False] * rest + [True]


def test_a_process_that_does_not_tell_its_count_is_an_error_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(stopping, "ANSWER_SECONDS", 0.2)
    store, hosts = KeyValuesOfOne(3, absent=[2]), ["h0", "h1", "h2"]
    requests = [StopRequest(grace_seconds=30) for _ in range(2)]
    talks = [Coordination(store, process_id=i, hosts=hosts) for i in range(2)]  # the third says nothing
    stops = [AgreedStop(request, talk) for request, talk in zip(requests, talks, strict=True)]
    requests[0].request()
    for stop in stops:
        with stop._changed:
            assert stop._changed.wait_for(lambda stop=stop: stop._error is not None, 60)  # type: ignore[misc]
        with pytest.raises(TrainerError, match="h2"):
            stop.look()


def test_one_process_on_its_own_stops_at_once() -> None:
    request = StopRequest(grace_seconds=30)
    stop = AgreedStop(request, Coordination(None, process_id=0, hosts=["h"]))
    assert not stop.look()
    request.request()
    assert stop.look()
