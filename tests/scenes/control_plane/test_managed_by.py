"""A job that another controller runs is left alone, whatever this operator does beside it."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.requests_made import requests_made
from tools.localcluster.api import ApiError
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

OTHER = "example.com/other"
CONSTANT = "cannot change after the job is created; delete it, and create another one"


def test_job_of_another_controller_is_left_alone(jobs: Jobs, operator: OperatorProcess) -> None:
    jobs.create("theirs", managedBy=OTHER)
    jobs.create("llama", managedBy="tpujob.dev/operator")
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    written = {"phase": "Running", "message": "by the other controller"}
    jobs.api.patch(f"{jobs.path}/theirs/status", {"status": written})
    jobs.patch("theirs", suspend=True)
    jobs.finish("llama")
    jobs.wait_phase("llama", "Succeeded")

    assert jobs.jobset("theirs") is None
    assert jobs.get("theirs")["status"] == written
    assert jobs.events("theirs") == []
    policies = jobs.api.items(f"/apis/networking.k8s.io/v1/namespaces/{jobs.namespace}/networkpolicies")
    assert [policy["metadata"]["name"] for policy in policies] == ["llama-tpujob"]
    named = [r for r in requests_made(jobs.plane.audit_log, jobs.namespace) if r.name.startswith("theirs")]
    assert [request for request in named if request.is_write] == []
    counted = operator.metric("tpujob_operator_job_phase", f'job_namespace="{jobs.namespace}"')
    assert counted == 1, "llama alone is counted"


def test_operator_that_starts_leaves_it_alone_too(jobs: Jobs, operator_directory: Path) -> None:
    jobs.create("theirs", managedBy=OTHER)
    jobs.create("llama")
    with OperatorProcess(jobs.plane, operator_directory):
        jobs.wait_phase("llama", "Starting")
    assert jobs.jobset("theirs") is None
    assert "status" not in jobs.get("theirs")


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, OTHER), (OTHER, None), (OTHER, "example.com/third"), (None, "tpujob.dev/operator")],
)
def test_controller_cannot_be_changed(jobs: Jobs, before: str | None, after: str | None) -> None:
    jobs.create("llama", managedBy=before)
    with pytest.raises(ApiError, match=CONSTANT) as refusal:
        jobs.patch("llama", managedBy=after)
    assert "spec.managedBy" in refusal.value.message


def test_job_of_another_controller_is_deleted_at_once(jobs: Jobs, operator: OperatorProcess) -> None:
    jobs.create("theirs", managedBy=OTHER)
    jobs.api.delete(f"{jobs.path}/theirs")
    wait_for("no finalizer to keep it", lambda: not jobs.api.items(jobs.path))
