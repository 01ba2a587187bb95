"""The NetworkPolicy beside a job: made, corrected where it is ours, and never written where it is not."""

from typing import Any

import pytest

from tests.operator.building import JOB_UID, job, observed
from tpujob_operator.api.conditions import Reason, Type, condition
from tpujob_operator.api.load import load_job
from tpujob_operator.decide.chain import decide
from tpujob_operator.jobset.network_policy import network_policy
from tpujob_operator.observe.state import PolicyState
from tpujob_operator.settings import Settings

SETTINGS = Settings()
WANTED = network_policy(load_job(job()), SETTINGS)
AS_READ: dict[str, Any] = {"uid": "policy-uid", "resource_version": "5"}
OPEN: dict[str, Any] = {"podSelector": {}, "ingress": [{}], "egress": [{}]}
CASES = {
    "not looked at": (None, None, None),
    "absent": (PolicyState(), WANTED["spec"], None),
    "as it should be": (PolicyState(owner_uids=(JOB_UID,), spec=WANTED["spec"], **AS_READ), None, None),
    "ours, opened": (
        PolicyState(owner_uids=(JOB_UID,), spec=OPEN, **AS_READ),
        {**WANTED["spec"], "egress": None},
        None,
    ),
    "a foreign one": (PolicyState(spec=OPEN, **AS_READ), None, Reason.NETWORK_POLICY_NAME_TAKEN),
    "an earlier job's": (
        PolicyState(owner_uids=("old",), spec=OPEN, **AS_READ),
        None,
        Reason.NETWORK_POLICY_NAME_TAKEN,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_an_own_policy_is_written(name: str) -> None:
    found, spec, reason = CASES[name]
    decision = decide(observed(job(), network_policy=found), SETTINGS)
    written = decision.network_policy
    assert (written and written["spec"]) == spec
    if written is not None:
        assert written["metadata"]["name"] == "llama-tpujob"
        assert written["metadata"].get("uid") == (found.uid if found else None)
    isolated = condition(decision.status, Type.ISOLATED)
    assert (isolated and isolated["reason"]) == reason


def test_the_condition_ends_with_its_cause() -> None:
    taken = decide(observed(job(), network_policy=CASES["a foreign one"][0]), SETTINGS)
    freed = decide(observed(job(status=dict(taken.status)), network_policy=PolicyState()), SETTINGS)
    isolated = condition(freed.status, Type.ISOLATED)
    assert isolated is not None
    assert (isolated["status"], isolated["reason"]) == ("True", Reason.NETWORK_POLICY_MADE)
