"""Why the operator looks at jobs by lists of its own and not by kopf's timers."""

import os
import sys
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tools.localcluster.api import ApiError
from tools.localcluster.processes import Process
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane


def test_timer_of_kopf_keeps_a_job_from_being_deleted(jobs: Jobs, tmp_path: Path) -> None:
    """It puts a finalizer on every job that it looks at: without the operator, none can be deleted any more."""
    log = tmp_path / "timer.log"
    command = [sys.executable, "-m", "tests.scenes.control_plane.kopf_timer", jobs.namespace]
    environment = {**os.environ, "KUBECONFIG": str(jobs.plane.kubeconfig)}
    timer = Process("kopf timer", command, log, environment=environment)
    try:
        jobs.create("llama", suspend=True)
        wait_for("the timer", lambda: "looked at llama" in log.read_text(), explain=log.read_text)
    finally:
        timer.stop()
    job = f"{jobs.path}/llama"
    jobs.api.delete(job)
    left = jobs.get("llama")["metadata"]
    assert left["deletionTimestamp"]
    assert left["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    jobs.api.patch(job, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiError, match="not found"):
        jobs.get("llama")
