"""What an operator asks of the API server when it starts and the jobs are there."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.requests_made import requests_made
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane
COUNT = 5


def test_start_reads_no_job_by_itself(installed: ControlPlane, jobs: Jobs, tmp_path: Path) -> None:
    """It has them all from its lists, which the first passes wait for."""
    names = [f"job-{index}" for index in range(COUNT)]
    with OperatorProcess(installed, tmp_path / "first"):
        for name in names:
            jobs.create(name, suspend=True)
        for name in names:
            jobs.wait_phase(name, "Suspended")
    before = len(requests_made(installed.audit_log, jobs.namespace))
    with OperatorProcess(installed, tmp_path / "second") as operator:
        wait_for(
            "a pass of each job",
            lambda: operator.metric("tpujob_operator_reconciles_total", 'result="ok"') >= COUNT,
            explain=operator.log,
        )
        made = requests_made(installed.audit_log, jobs.namespace)[before:]
    assert [request for request in made if request.verb != "watch"] == []
