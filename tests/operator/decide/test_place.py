"""When a job that MultiKueue runs asks for a place, and when it gives it back."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.place import place_step
from tpujob_operator.observe.state import Observed
from tpujob_resource.jobset.workload import workload_name

UID = "0b8f6d5e-1f6c-4d0a-9d3e-2d1c0f6a7b88"
FIRST, SECOND = (workload_name("llama", UID, retry) for retry in (0, 1))


def _job(status: dict[str, Any] | None = None, **spec: Any) -> Observed:
    job = manifest("llama", queue="q", managedBy="kueue.x-k8s.io/multikueue", **spec)
    job["metadata"] |= {"uid": UID, "generation": 1, "namespace": "team"}
    return Observed(manifest={**job, "status": status or {}})


def _workload(*conditions: str, name: str = FIRST, active: bool = True, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, **metadata},
        "spec": {"active": active},
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }


ADMITTED = ("QuotaReserved", "Admitted")
FAILED = {"phase": "Failed", "internal.retry": 0}
CASES: dict[str, tuple[Observed, list[dict[str, Any]], str | None, list[str]]] = {
    "a new job asks": (_job(), [], FIRST, []),
    "one that waits is left": (_job(), [_workload()], None, []),
    "one that has its place is left": (_job(), [_workload(*ADMITTED)], None, []),
    "one that lost its place makes room": (_job(), [_workload(*ADMITTED, "Evicted")], None, [FIRST]),
    "one that queues again is left": (_job(), [_workload("Evicted")], None, []),
    "one that was deactivated is left": (_job(), [_workload(*ADMITTED, "Evicted", active=False)], None, []),
    "one that is being deleted is awaited": (
        _job(),
        [_workload(*ADMITTED, "Evicted", deletionTimestamp="2030-01-01T00:00:00Z")],
        None,
        [],
    ),
    "an end stays": (_job(), [_workload(*ADMITTED, "Finished")], None, []),
    "a suspended job gives its place back": (_job(suspend=True), [_workload(*ADMITTED)], None, [FIRST]),
    "a suspended job does not ask": (_job(suspend=True), [], None, []),
    "a failed job gives its place back": (_job(FAILED), [_workload(*ADMITTED)], None, [FIRST]),
    "a failed job does not ask again": (_job(FAILED), [], None, []),
    "a retry asks": (_job(FAILED, retry=1), [_workload("Finished")], SECOND, []),
    "a retry that has ended does not": (_job(retry=1), [_workload("Finished", name=SECOND)], None, []),
    "a job that runs keeps its place": (_job({"phase": "Running"}), [_workload(*ADMITTED)], None, []),
}


@pytest.mark.parametrize("case", CASES)
def test_place(case: str) -> None:
    observed, workloads, created, deleted = CASES[case]
    step = place_step(observed, workloads, Settings())
    assert (step.create or {"metadata": {"name": None}})["metadata"]["name"] == created
    assert [each["metadata"]["name"] for each in step.delete] == deleted
    assert step.problems == ()


def test_job_that_only_the_operator_refuses_asks_for_no_place() -> None:
    step = place_step(_job(accelerator="v5e-3"), [], Settings())
    assert step.create is None
    assert step.problems
