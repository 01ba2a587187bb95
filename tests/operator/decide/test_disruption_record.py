"""What was taken away is judged alike by an operator that saw it and by its successor."""

from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, ended, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.evidence import recorded_disruption
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.state import Ended, LostNode
from tpujob_resource.models.status import Status

ASKED: dict[str, Any] = {"was_asked": True, "asked_at": NOW}
EVICTED = ended(0, 143, **ASKED, is_disrupted=True, node="node-1")
CRASHED_AFTER = ended(1, 134, after=2)
CRASHED_BEFORE = ended(1, 134, after=-9)
GONE = LostNode(attempt=0, name="node-1", trouble="is gone")

TOLD = {
    # name: (ends and nodes seen before the operator restarted, ends seen after it, disruptions, crashes)
    "evicted, then it crashed": ((EVICTED,), (), (CRASHED_AFTER,), (1, None)),
    "deleted, then it crashed": ((ended(0, 143, **ASKED),), (), (CRASHED_AFTER,), (1, None)),
    "both were seen": ((EVICTED, CRASHED_AFTER), (), (), (1, None)),
    "it had crashed before": ((EVICTED,), (), (CRASHED_BEFORE,), (None, 1)),
    "it had crashed before, and that was seen": ((EVICTED, CRASHED_BEFORE), (), (), (None, 1)),
    "a node was gone": ((CRASHED_AFTER,), (GONE,), (), (1, None)),
    "only a node was seen": ((), (GONE,), (CRASHED_AFTER,), (1, None)),
    "a crash": ((CRASHED_AFTER,), (), (), (None, 1)),
    "code 75 that nobody asked for, then its peers are deleted": (
        (ended(0, 75),),
        (),
        (ended(1, 143, after=3, was_asked=True, asked_at=NOW + timedelta(seconds=1), asked_version=9),),
        (None, None),
    ),
    "the same within the second": (
        (ended(0, 75, version=8),),
        (),
        (ended(1, 143, after=3, **ASKED, asked_version=9),),
        (None, None),
    ),
    "code 75 of a pod whose peer was deleted before": (
        (ended(0, 75, after=2),),
        (),
        (ended(1, 143, after=3, **ASKED),),
        (1, None),
    ),
}


@pytest.mark.parametrize(("before", "nodes", "after", "expected"), TOLD.values(), ids=TOLD.keys())
def test_a_successor_knows_what_was_taken_away(
    before: tuple[Ended, ...],
    nodes: tuple[LostNode, ...],
    after: tuple[Ended, ...],
    expected: tuple[int | None, int | None],
) -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=before, lost_nodes=nodes)
    status = status_of(decide(seen, Settings()))
    Status.model_validate(status)
    later = observed(job(status=dict(status)), jobset=jobset(restarts=1), hosts=BOTH, ended=after)
    judged = status_of(decide(later, Settings()))
    assert (judged.get("restarts.disruptions"), judged.get("restarts.charged")) == expected


def test_the_record_does_not_change_while_nothing_happens() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(EVICTED, ended(1, 143, after=1, **ASKED)))
    status = status_of(decide(seen, Settings()))
    again = observed(job(status=dict(status)), jobset=jobset(), ended=seen.ended[::-1])
    assert status_of(decide(again, Settings())) == status


def test_a_rest_leaves_no_record() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(EVICTED,))
    status = status_of(decide(seen, Settings()))
    assert status["internal.disruption"]["node"] == "node-1"
    rested = observed(job(status=status, suspend=True), jobset=jobset(suspended=True))
    assert "internal.disruption" not in status_of(decide(rested, Settings()))
    asked_again = observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 75),))
    status = status_of(decide(asked_again, Settings()))
    assert status["internal.askedAgain"]["host"] == "slice 0 host 0"
    assert "failure" not in status
    rested = observed(job(status=status, suspend=True), jobset=jobset(suspended=True))
    assert "internal.askedAgain" not in status_of(decide(rested, Settings()))


def test_an_end_that_a_disruption_explains_is_no_asking() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(EVICTED, ended(1, 75, after=1)))
    status = status_of(decide(seen, Settings()))
    assert (status["internal.disruption"]["node"], status.get("internal.askedAgain")) == ("node-1", None)


@pytest.mark.parametrize("order", [0, 1], ids=["recorded before", "seen after"])
def test_node_that_is_gone_explains_more_than_a_pod(order: int) -> None:
    looks: list[dict[str, Any]] = [{"ended": (EVICTED,)}]
    looks.insert(order, {"lost_nodes": (GONE,)})
    first = observed(job(status=recorded()), jobset=jobset(), **looks[0])
    status = status_of(decide(first, Settings()))
    later = observed(job(status=status), jobset=jobset(), **looks[1])
    assert status_of(decide(later, Settings()))["internal.disruption"]["trouble"] == "is gone"


def test_record_without_a_place_is_of_the_first_host() -> None:
    status = recorded(disruption={"attempt": 0, "exitCode": 143})
    end = recorded_disruption(observed(job(status=status)))
    assert end is not None
    assert (end.slice_index, end.host_index) == (0, 0)
