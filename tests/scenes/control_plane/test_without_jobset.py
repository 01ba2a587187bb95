"""A cluster on which nobody has installed JobSet, or the operator, yet."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tests.operator.manifests import container_manifest
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import jobset_custom_resources
from tpujob_contract import ExitCode, kubernetes_names

pytestmark = pytest.mark.control_plane


@pytest.fixture
def bare(control_plane: ControlPlane, custom_resources: list[Path], tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane that knows our resource and no JobSets; the session's is named for its programs."""
    with ControlPlane(tmp_path / "plane", custom_resources=custom_resources) as plane:
        grant_rights(plane)
        plane.create_namespace("team")
        yield plane


@pytest.fixture
def unready(bare: ControlPlane, operator_directory: Path) -> Iterator[OperatorProcess]:
    """An operator there; it is not ready, since it can list no JobSets."""
    process = OperatorProcess(bare, operator_directory)
    process.start()
    yield process
    process.stop()


def test_a_job_says_that_jobset_is_not_installed(bare: ControlPlane, unready: OperatorProcess) -> None:
    jobs = Jobs(bare, "team")
    jobs.create("llama")
    status = jobs.wait("llama", "to be blocked", lambda s: s.get("conditions"))
    (blocked,) = (c for c in status["conditions"] if c["type"] == "Blocked")
    assert (status["phase"], blocked["status"], blocked["reason"]) == ("Queued", "True", "JobSetNotInstalled")
    assert f"does not serve {kubernetes_names.JOBSET_API_VERSION}" in status["message"]

    bare.kubectl("apply", "--server-side", "-f", jobset_custom_resources())
    status = jobs.wait_phase("llama", "Starting")
    (blocked,) = (c for c in status["conditions"] if c["type"] == "Blocked")
    assert blocked["status"] == "False"
    assert jobs.jobset("llama") is not None
    unready.wait_until_ready()


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        ("team", "this cluster has no TpuTrainingJobs; install the operator: helm install tpujob"),
        ("absent", "namespace: 'absent' is not there; `kubectl create namespace absent`, or see -n"),
    ],
)
def test_a_job_that_nobody_can_take_is_refused_with_the_way_out(
    bare: ControlPlane, tmp_path: Path, namespace: str, words: str
) -> None:
    if namespace == "team":
        bare.kubectl("delete", "customresourcedefinition", f"{kubernetes_names.PLURAL}.{kubernetes_names.GROUP}")
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(container_manifest(resources={"requests": {"cpu": 1}})))
    told = subprocess.run(
        [sys.executable, "-m", "tpujob", "submit", str(file), "--no-follow", "-n", namespace],
        env={**os.environ, "KUBECONFIG": str(bare.kubeconfig), "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert words in told.stderr, told.stderr
    assert told.returncode == ExitCode.NOT_FOUND
