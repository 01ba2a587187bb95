"""`kubectl apply -f examples/quickstart.yaml` on a real API server, as the README says."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster import pods
from tools.localcluster.waiting import wait_for

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart.yaml"

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]


def test_the_quickstart_becomes_a_jobset_with_its_jobs(jobs: Jobs, operator: OperatorProcess) -> None:
    jobs.plane.kubectl("apply", "-n", jobs.namespace, "-f", str(QUICKSTART))

    found = jobs.wait_pods("quickstart")
    child_jobs = jobs.api.items(f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs")
    assert [job["metadata"]["name"] for job in child_jobs] == ["quickstart-w-0"]
    assert child_jobs[0]["spec"]["completions"] == 2
    for pod in found:
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("quickstart", "Running")
    header, row = jobs.plane.kubectl("get", "ttj", "-n", jobs.namespace).splitlines()
    assert header.split()[:3] == ["NAME", "ACCELERATOR", "PHASE"]
    assert row.split()[:3] == ["quickstart", "cpu:2x4", "Running"]

    jobs.plane.kubectl("delete", "ttj", "quickstart", "-n", jobs.namespace)
    wait_for("the JobSet to go with its job", lambda: jobs.jobset("quickstart") is None)
