"""The NetworkPolicy beside a job: made, corrected where it is ours, and never written where it is not."""

from typing import Any

import pytest

from tests.operator.building import BOTH, JOB_UID, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.state import PolicyState
from tpujob_resource.jobset.access import network_policy
from tpujob_resource.messages.conditions import Reason, Type, condition
from tpujob_resource.rules.load import load_job

SETTINGS = Settings()
WANTED = network_policy(load_job(job()), SETTINGS)
AS_READ: dict[str, Any] = {"uid": "policy-uid", "resource_version": "5"}
OPEN: dict[str, Any] = {"podSelector": {}, "ingress": [{}], "egress": [{}]}
QUEUED = {"phase": "Queued", "message": "as before"}

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
    decision = decide(observed(job(status=QUEUED), network_policy=found), SETTINGS)
    written = decision.network_policy
    assert (written and written["spec"]) == spec
    if written is not None:
        assert written["metadata"]["name"] == "llama-tpujob"
        assert written["metadata"].get("uid") == (found.uid if found else None)
    isolated = condition(decision.status, Type.ISOLATED)
    assert (isolated and isolated.reason) == reason


def test_the_condition_ends_with_its_cause() -> None:
    taken = decide(observed(job(status=QUEUED), network_policy=CASES["a foreign one"][0]), SETTINGS)
    freed = decide(observed(job(status=status_of(taken)), network_policy=PolicyState()), SETTINGS)
    isolated = condition(freed.status, Type.ISOLATED)
    assert isolated is not None
    assert (isolated.status, isolated.reason) == ("True", Reason.NETWORK_POLICY_MADE)


# the JobSet's fields, the policy that was seen: the condition
ISOLATION: dict[str, tuple[dict[str, Any], PolicyState | None, tuple[str, Reason] | None]] = {
    "on the pod network": ({}, None, None),
    "on the nodes' network": ({"host_network": True}, None, ("False", Reason.HOST_NETWORK)),
    "there, with a policy of its own": (
        {"host_network": True},
        CASES["as it should be"][0],
        ("False", Reason.HOST_NETWORK),
    ),
    "there, with a foreign policy": ({"host_network": True}, CASES["a foreign one"][0], ("False", Reason.HOST_NETWORK)),
    "there, of an earlier incarnation": ({"host_network": True, "incarnation": 2}, None, None),
    "somebody else's": ({"host_network": True, "owner_uid": "other"}, None, None),
}


@pytest.mark.parametrize("name", ISOLATION)
def test_no_policy_isolates_pods_on_the_nodes_network(name: str) -> None:
    fields, policy, expected = ISOLATION[name]
    seen = observed(job(status=recorded()), jobset=jobset(**fields), hosts=BOTH, network_policy=policy)
    isolated = condition(decide(seen, SETTINGS).status, Type.ISOLATED)
    assert (isolated and (isolated.status, isolated.reason)) == expected


def test_incarnation_of_the_status_is_looked_at() -> None:
    second = job(status=recorded(incarnation=2))
    seen = observed(second, jobset=jobset(host_network=True, incarnation=2), hosts=BOTH)
    assert condition(decide(seen, SETTINGS).status, Type.ISOLATED) is not None


def test_it_says_so_before_the_first_pod() -> None:
    """In the write that records the JobSet."""
    seen = observed(job(status={}), jobset=jobset(suspended=True, host_network=True))
    isolated = condition(decide(seen, SETTINGS).status, Type.ISOLATED)
    assert isolated is not None
    assert "jobs.multislice.hostNetwork" in isolated.message
