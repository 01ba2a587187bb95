"""Objects of which the API server shows the least that it may: what is absent is read as nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.operator.building import JOBSET_UID, NOW, pod, terminated
from tpujob_operator.observe.from_objects import ended_by_deletion, ended_from_pod, host_from_pod, jobset_state
from tpujob_resource.models.times import format_time


def bare_pod(**status: Any) -> dict[str, Any]:
    made = pod()
    made["status"] = status or None
    return made


def bare_jobset(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "llama", "uid": JOBSET_UID}, "spec": {}, **fields}


def test_pod_without_a_status_is_not_ready() -> None:
    host = host_from_pod(bare_pod())
    assert (host.ready, host.succeeded, host.finished_at, host.unschedulable) == (False, False, None, None)
    assert ended_from_pod(bare_pod()) is None


def test_pod_that_has_only_a_phase_is_read() -> None:
    assert host_from_pod(bare_pod(phase="Succeeded")).succeeded
    assert host_from_pod(bare_pod(phase="Pending", conditions=None)).ready is False


def test_failed_host_has_not_finished() -> None:
    """`finished_at` is of hosts that are done: a crash is no end that the others should have followed."""
    assert host_from_pod(pod(phase="Failed", state=terminated(1))).finished_at is None
    assert host_from_pod(pod(phase="Succeeded", state=terminated(0))).finished_at == NOW


def test_failed_pod_says_what_is_known() -> None:
    found = {
        name: ended_from_pod(bare_pod(phase="Failed", startTime=format_time(NOW), **fields))
        for name, fields in {
            "nothing": {},
            "a reason": {"reason": "Evicted"},
            "both": {"reason": "Evicted", "message": "disk"},
        }.items()
    }
    assert {name: end.message for name, end in found.items() if end is not None} == {
        "nothing": "it failed before its container ran",
        "a reason": "Evicted",
        "both": "Evicted: disk",
    }


def test_refusal_of_a_node_counts_for_failed_pods_only() -> None:
    running = pod(reason="NodeShutdown", startTime=format_time(NOW), state=terminated(1))
    end = ended_from_pod(running)
    assert end is not None
    assert (end.is_disrupted, end.was_asked) == (False, False)


@pytest.mark.parametrize(("deleted_after", "at"), [(5, NOW + timedelta(seconds=35)), (None, None)])
def test_deleted_pod_ended_when_its_grace_did(deleted_after: float | None, at: datetime | None) -> None:
    end = ended_by_deletion(pod(deleted_after=deleted_after))
    assert end is not None
    assert end.finished_at == (at or datetime.fromtimestamp(0, UTC))


def test_jobset_without_a_status_has_not_started() -> None:
    state = jobset_state(bare_jobset(status=None))
    assert (state.restarts, state.outcome, state.owner_uid, state.suspended) == (0, None, None, False)
    assert (state.incarnation, state.slices, state.hosts_per_slice) == (1, 1, 1)


@pytest.mark.parametrize(("label", "incarnation"), [("3", 3), ("", 1), ("many", 1)])
def test_incarnation_is_a_label(label: str, incarnation: int) -> None:
    made = bare_jobset()
    made["metadata"]["labels"] = {"tpujob.dev/incarnation": label}
    assert jobset_state(made).incarnation == incarnation


@pytest.mark.parametrize("is_controller", [True, False])
def test_owner_is_the_controlling_one(is_controller: bool) -> None:
    made = bare_jobset()
    owner = {"kind": "TpuTrainingJob", "uid": "job-uid", "controller": is_controller}
    made["metadata"]["ownerReferences"] = [{"kind": "Workload", "uid": "other", "controller": True}, owner]
    assert jobset_state(made).owner_uid == ("job-uid" if is_controller else None)


def test_two_conditions_are_told_apart() -> None:
    conditions = [
        {"type": "Completed", "status": "False"},
        {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "w-0", "lastTransitionTime": None},
    ]
    state = jobset_state(bare_jobset(status={"conditions": conditions, "restarts": 1}))
    assert (state.outcome, state.outcome_reason, state.outcome_message) == ("Failed", "FailedJobs", "w-0")
    assert (state.restarts, state.outcome_at) == (1, None)
