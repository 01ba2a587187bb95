"""Jobs of independent workers with the real API server, Job and JobSet controllers; the kubelet is played."""

from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tests.scenes.control_plane.reporting import REPORT_ADDRESS, reporting
from tools.localcluster import pods
from tools.localcluster.api import ApiError
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
    figures = {"units": 100, "units_done": 40, "units_claimed": 3, "rows_per_second": 12.34}
    report = {"phase": "extracting", "step": 40, "steps": 100, **figures, "unit_failures": {"storage": 2}}
    with reporting(report):
        for pod in found:
            pods.set_running(jobs.api, pod, pod_ip=REPORT_ADDRESS if pod is found[0] else None)
        jobs.wait("features", "units in status", lambda status: (status.get("step"), status.get("steps")) == (40, 100))
        status = jobs.wait_phase("features", "Running")
        assert status["progress.units"] == {
            "total": 100, "done": 40, "claimed": 3, "left": 57, "rowsPerSecond": 12.3, "failures": {"storage": 2},
        }  # fmt: skip
    pods.set_failed(jobs.api, found[1], exit_code=137)
    job_path = f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs"
    wait_for(
        "the failed index",
        lambda: any(job["status"].get("failedIndexes") == "1" for job in jobs.api.items(job_path)),
    )
    assert jobs.get("features")["status"]["phase"] == "Running"
    pods.set_succeeded(jobs.api, found[0])
    units = jobs.wait_phase("features", "Succeeded")["progress.units"]
    assert (units["done"], units["claimed"], units["left"]) == (100, 0, 0)


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
    )
    assert jobs.get("commands")["status"]["phase"] == "Running"
    pods.set_succeeded(jobs.api, found[1])
    jobs.wait_phase("commands", "Succeeded")


def _sizes(jobs: Jobs, name: str) -> tuple[int, int]:
    spec = jobs.api.get(f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs/{name}-w-0")["spec"]
    return spec["parallelism"], spec["completions"]


def test_number_of_workers_changes_in_place(jobs: Jobs) -> None:
    """More of them, fewer, and back to the first number; no pod that stays is touched."""
    jobs.create("features", **EXTRACTION)
    first = jobs.wait_pods("features", 3)
    for pod in first:
        pods.set_running(jobs.api, pod)
    uid = jobs.wait_phase("features", "Running")["internal.jobSetUid"]
    jobs.patch("features", workers=5)
    more = jobs.wait_pods("features", 5)
    assert {pod["metadata"]["uid"] for pod in first} < {pod["metadata"]["uid"] for pod in more}
    jobs.wait("features", "5 hosts", lambda status: status.get("hosts") == 5)
    jobs.patch("features", workers=2)
    wait_for("the highest to go", lambda: len(_staying(jobs)) == 2)
    assert {_index(pod) for pod in _staying(jobs)} == {"0", "1"}
    jobs.wait("features", "2 hosts", lambda status: status.get("hosts") == 2)
    jobs.patch("features", workers=3)
    jobs.wait("features", "3 hosts", lambda status: status.get("hosts") == 3)
    wait_for("the Job to have that size", lambda: _sizes(jobs, "features") == (3, 3))
    status = jobs.wait_phase("features", "Running")
    assert (status["internal.jobSetUid"], status.get("restarts.total", 0)) == (uid, 0)


def _staying(jobs: Jobs) -> list[dict[str, Any]]:
    found = jobs.api.items(f"/api/v1/namespaces/{jobs.namespace}/pods")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _index(pod: dict[str, Any]) -> str:
    index: str = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
    return index


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({"accelerator": "cpu:1x1", "workers": 2}, {"workers": 3}),
        ({**EXTRACTION, "queue": "tpus"}, {"workers": 4}),
        (EXTRACTION, {"workers": None}),
    ],
    ids=["a command's", "a queue's", "none at all"],
)
def test_other_workers_do_not_change(jobs: Jobs, spec: dict[str, Any], change: dict[str, Any]) -> None:
    jobs.create("fixed", **spec)
    jobs.wait("fixed", "a phase that is not edited in", lambda s: s.get("phase") in ("Queued", "Starting", "Running"))
    with pytest.raises(ApiError, match=r"spec.workers cannot change while the job is"):
        jobs.patch("fixed", **change)
