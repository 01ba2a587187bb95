"""What is charged to a job, as a table of two looks at it."""

from typing import Any

import pytest

from tests.operator.building import job, jobset, observed, recorded
from tpujob_operator.budget import account, crashes, limit
from tpujob_operator.observed import Observed
from tpujob_operator.status import difference

AFTER_TWO: dict[str, Any] = {"crashes": 2, "chargedRestarts": 2, "crashedAtStep": 100}


def seen(charged: int, **status: Any) -> Observed:
    return observed(job(status=recorded(**status)), jobset=jobset(charged_restarts=charged))


@pytest.mark.parametrize(
    ("charged", "status", "expected"),
    [
        pytest.param(0, {}, {}, id="nothing happened"),
        pytest.param(1, {}, {"crashes": 1, "chargedRestarts": 1, "crashedAtStep": 0}, id="the first crash"),
        pytest.param(2, AFTER_TWO, {}, id="counted already"),
        pytest.param(
            3,
            {**AFTER_TWO, "lastCheckpointStep": 100},
            {"crashes": 3, "chargedRestarts": 3, "crashedAtStep": 100},
            id="no newer checkpoint",
        ),
        pytest.param(
            3,
            {**AFTER_TWO, "lastCheckpointStep": 150},
            {"crashes": 1, "chargedRestarts": 3, "crashedAtStep": 150},
            id="a newer checkpoint refills",
        ),
        pytest.param(
            5,
            {**AFTER_TWO, "lastCheckpointStep": 100},
            {"crashes": 5, "chargedRestarts": 5, "crashedAtStep": 100},
            id="missed some",
        ),
    ],
)
def test_crashes_are_counted_since_the_last_progress(charged, status, expected):
    assert account(seen(charged, **status)) == expected


def test_counting_twice_changes_nothing():
    first = seen(1)
    again = seen(1, **account(first))
    assert account(again) == {}
    assert crashes(first) == crashes(again) == 1
    assert difference(again.status, {**again.status, **account(again)}) == {}


def test_a_job_without_its_jobset_has_the_crashes_it_had():
    assert crashes(observed(job(status=recorded(**AFTER_TWO)))) == 2


@pytest.mark.parametrize(("spec", "expected"), [({}, 3), ({"restarts": {}}, 3), ({"restarts": {"crashes": 0}}, 0)])
def test_the_limit_is_the_spec_s_or_three(spec, expected):
    assert limit(spec) == expected
