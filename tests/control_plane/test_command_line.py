"""The command line's cluster verbs against a real API server, whose pods are played: it has no node."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.control_plane.jobs import Jobs
from tests.control_plane.operator_process import OperatorProcess
from tests.operator.manifests import container_manifest
from tools.localcluster import pods

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]


class Shell:
    """A person at a terminal, whose kubeconfig names the test's cluster and namespace."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self.jobs = jobs
        self.folder = folder
        self.environ = {**os.environ, "KUBECONFIG": str(jobs.plane.kubeconfig), "NO_PROXY": "127.0.0.1"}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tpujob", *arguments, "-n", self.jobs.namespace],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, name: str, **spec: Any) -> str:
        job = container_manifest(**{"accelerator": "cpu:2x1", **spec})
        job["metadata"] = {"name": name}
        YAML().dump(job, self.folder / f"{name}.yaml")
        return f"{name}.yaml"


@pytest.fixture
def shell(jobs: Jobs, tmp_path: Path) -> Shell:
    return Shell(jobs, tmp_path)


def test_a_job_is_submitted_watched_stopped_and_resumed(shell: Shell, jobs: Jobs) -> None:
    file = shell.write("llama")
    assert "would accept it" in shell("submit", file, "--dry-run")
    assert "no jobs in namespace" in shell("get")
    assert "llama: created" in shell("submit", file, "--no-follow")
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    assert shell("get").splitlines()[1].split()[:4] == ["llama", "cpu:2x1", "Running", "2/2"]
    assert json.loads(shell("get", "llama", "-o", "json"))["status"]["phase"] == "Running"
    assert YAML(typ="safe", pure=True).load(shell("get", "-o", "yaml"))[0]["metadata"]["name"] == "llama"
    assert shell("top", "--once").splitlines()[1].split()[0] == "llama"
    told = shell("describe", "llama")
    assert f"{jobs.namespace}/llama: Running. cpu:2x1" in told
    assert "hosts: 2 of 2 ready" in told

    assert "asked to save and stop" in shell("stop", "llama", "--no-wait")
    assert jobs.get("llama")["spec"]["suspend"] is True
    assert "llama: goes on" in shell("resume", "llama")
    assert "is not stopped" in shell("resume", "llama", code=78)


def test_a_failure_is_described_with_host_code_and_message(shell: Shell, jobs: Jobs) -> None:
    shell("submit", shell.write("broken"), "--no-follow")
    first, _ = jobs.run("broken")
    pods.set_failed(jobs.api, first, exit_code=78, message="host-0: spec.trainer.steps: wrong")
    jobs.wait_phase("broken", "Failed")
    told = shell("describe", "broken")
    assert "broken: Failed" in told
    assert "exit code 78" in told
    assert "spec.trainer.steps: wrong" in told
    assert "has ended as Failed" in shell("stop", "broken", code=78)
    assert "spec.retry: 1" in shell("retry", "broken")
    jobs.wait("broken", "another incarnation", lambda status: status.get("incarnation") == 2)
    assert "has not ended" in shell("retry", "broken", code=78)


def test_what_the_server_refuses_is_told_by_field(shell: Shell, jobs: Jobs) -> None:
    file = shell.write("twice")
    shell("submit", file, "--no-follow")
    assert "metadata.name: 'twice' is there already" in shell("submit", file, "--no-follow", code=78)
    assert "there are twice" in shell("describe", "absent", code=77)
    assert "no pods" in shell("logs", "twice", "--slice", "7", code=1)


def test_logs_without_a_node_say_why_there_are_none(shell: Shell, jobs: Jobs) -> None:
    shell("submit", shell.write("silent"), "--no-follow")
    jobs.run("silent")
    told = shell("logs", "silent")
    assert "slice 0 host 0 | (no log: " in told
    assert "slice 0 host 1 | (no log: " in told


def test_doctor_names_what_is_there_and_what_is_missing(shell: Shell, operator: OperatorProcess) -> None:
    told = shell("doctor", code=1)
    assert "ok       JobSet: jobset.x-k8s.io/v1alpha2 is installed" in told
    # Here the operator is a process of the test and no Deployment.
    assert "missing  operator: no Deployment" in told
    assert "→ helm install tpujob" in told
    verdicts = {finding["subject"]: finding["verdict"] for finding in json.loads(shell("doctor", "-o", "json", code=1))}
    assert verdicts["TpuTrainingJob"] == "ok"
    assert verdicts["your rights"] == "ok"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KUBECONFIG": "/nowhere/config"}, "no cluster"),
        ({}, "--context: 'other' is not in the kubeconfig"),
    ],
    ids=["no kubeconfig", "no such context"],
)
def test_a_missing_cluster_is_told_without_a_traceback(shell: Shell, variables: dict[str, str], words: str) -> None:
    shell.environ |= variables
    assert words in shell("get", "--context", "other", code=78)
