"""Jobs of independent workers with the real API server, Job and JobSet controllers; the kubelet is played."""

from typing import Any

import pytest

from tests.control_plane.jobs import Jobs
from tests.control_plane.test_lifecycle import REPORT_ADDRESS, reporting
from tools.localcluster import pods
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

EXTRACTION: dict[str, Any] = {
    "accelerator": "cpu:1x1",
    "workers": 3,
    "image": None,
    "command": None,
    "checkpointDir": "gs://bucket/features",
    "restarts": {"crashes": 0},
    "trainer": {
        "task": "extract",
        "model": {"preset": "tiny"},
        "data": {"path": "/data"},
        "extract": {"layers": [1, "2-3"]},
    },
}


def test_one_worker_that_saw_all_done_is_enough(jobs: Jobs) -> None:
    """Another one has failed for good, and a third still runs: every unit is done all the same."""
    jobs.create("features", **EXTRACTION)
    found = jobs.wait_pods("features", 3)
    report = {"phase": "extracting", "step": 40, "steps": 100, "units": 100, "units_done": 40}
    with reporting(report):
        for pod in found:
            pods.set_running(jobs.api, pod, pod_ip=REPORT_ADDRESS if pod is found[0] else None)
        jobs.wait("features", "units in status", lambda status: (status.get("step"), status.get("steps")) == (40, 100))
        jobs.wait_phase("features", "Running")
    pods.set_failed(jobs.api, found[1], exit_code=137)
    job_path = f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs"
    wait_for(
        "the failed index",
        lambda: any(job["status"].get("failedIndexes") == "1" for job in jobs.api.items(job_path)),
        timeout_seconds=30,
    )
    assert jobs.get("features")["status"]["phase"] == "Running"
    pods.set_succeeded(jobs.api, found[0])
    jobs.wait_phase("features", "Succeeded")


def test_workers_of_a_command_all_have_to_finish(jobs: Jobs) -> None:
    jobs.create("commands", accelerator="cpu:1x1", workers=2)
    found = jobs.wait_pods("commands", 2)
    for pod in found:
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("commands", "Running")
    pods.set_succeeded(jobs.api, found[0])
    job_path = f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs"
    wait_for(
        "the first index",
        lambda: any(job["status"].get("succeeded") == 1 for job in jobs.api.items(job_path)),
        timeout_seconds=30,
    )
    assert jobs.get("commands")["status"]["phase"] == "Running"
    pods.set_succeeded(jobs.api, found[1])
    jobs.wait_phase("commands", "Succeeded")
