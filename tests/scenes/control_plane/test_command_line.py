"""The command line's cluster verbs against a real API server, whose pods are played: it has no node."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kubernetes.config import kube_config
from ruamel.yaml import YAML
from typer.testing import CliRunner

from tests.cli.test_job_file import READ_ALIKE, READ_OTHERWISE
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.operator.manifests import container_manifest, manifest
from tools.localcluster import binaries, pods
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob.job.yaml_text import read_value
from tpujob.main import app
from tpujob_contract import kubernetes_names

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]


class Shell:
    """A person at a terminal, whose kubeconfig names the test's cluster and namespace."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self.jobs = jobs
        self.folder = folder
        self.environ = {**os.environ, "KUBECONFIG": str(jobs.plane.kubeconfig), "NO_PROXY": "127.0.0.1"}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        # Where it is by default, the client has read when it was imported.
        place = mock.patch.object(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", self.environ["KUBECONFIG"])
        with contextlib.chdir(self.folder), place:
            done = CliRunner().invoke(app, [*arguments, "-n", self.jobs.namespace], env=self.environ)
        assert done.exception is None or isinstance(done.exception, SystemExit), "an exception would be a traceback"
        assert done.exit_code == code, done.output
        return done.stdout + done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tpujob", *arguments, "-n", self.jobs.namespace],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, name: str, **spec: Any) -> str:
        make = manifest if "trainer" in spec else container_manifest
        job = make(**{"accelerator": "cpu:2x1", **spec})
        job["metadata"] = {"name": name}
        YAML().dump(job, self.folder / f"{name}.yaml")
        return f"{name}.yaml"


@pytest.fixture
def shell(jobs: Jobs, tmp_path: Path) -> Shell:
    return Shell(jobs, tmp_path)


def test_a_job_is_submitted_watched_stopped_and_resumed(shell: Shell, jobs: Jobs) -> None:
    file = shell.write("llama")
    checked = shell("submit", file, "--dry-run")
    assert "would accept it" in checked
    assert "warning: spec.resources: is missing" in checked
    assert "no jobs in namespace" in shell("get")
    assert "llama: created" in shell("submit", file, "--no-follow")
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    assert shell("get").splitlines()[1].split()[:4] == ["llama", "cpu:2x1", "Running", "2/2"]
    assert json.loads(shell("get", "llama", "-o", "json"))["status"]["phase"] == "Running"
    assert YAML(typ="safe", pure=True).load(shell("get", "-o", "yaml"))[0]["metadata"]["name"] == "llama"
    assert shell("top", "--once").splitlines()[1].split()[0] == "llama"
    assert [job["metadata"]["name"] for job in json.loads(shell("top", "-o", "json"))] == ["llama"]
    told = shell("describe", "llama")
    assert f"{jobs.namespace}/llama: Running. cpu:2x1" in told
    assert "hosts: 2 of 2 ready" in told
    described = json.loads(shell("describe", "llama", "-o", "json"))
    assert described["job"]["status"]["phase"] == "Running"
    assert len(described["pods"]) == 2
    assert "hosts: 2 of 2 ready" in "".join(described["sentences"])

    assert "asked to save and stop" in shell("stop", "llama", "--no-wait")
    assert jobs.get("llama")["spec"]["suspend"] is True
    assert "llama: goes on" in shell("resume", "llama")
    assert "is not stopped" in shell("resume", "llama", code=78)


def test_a_reader_who_may_not_list_events_is_told_that_they_are_missing(shell: Shell, jobs: Jobs) -> None:
    jobs.create("llama")
    jobs.wait_phase("llama", "Starting")
    kubectl, here = jobs.plane.kubectl, f"--namespace={jobs.namespace}"
    kubectl("create", "serviceaccount", "reader", here)
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=tputrainingjobs.tpujob.dev,pods", here)
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={jobs.namespace}:reader", here)
    shell.environ["KUBECONFIG"] = str(jobs.plane.kubeconfig_of_service_account(jobs.namespace, "reader"))
    described = shell("describe", "llama")
    assert f"{jobs.namespace}/llama: Starting" in described
    assert f"warnings: not shown; your account may not list Events in {jobs.namespace}" in described


def test_a_running_job_is_stopped_changed_and_goes_on(shell: Shell, jobs: Jobs) -> None:
    """What the server refuses stops nothing, and what need not stop the job does not."""
    resources = {"requests": {"cpu": "1"}}
    first = {"command": ["python3", "train.py"], "env": [{"name": "LR", "value": "1e-3"}], "resources": resources}
    created = shell("submit", shell.write("llama", **first), "--replace", "--no-follow")
    assert f"{jobs.namespace}/llama: created, as there was none" in created
    pods = jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    same = shell("submit", shell.write("llama", **first), "--replace", "--no-follow")
    assert f"{jobs.namespace}/llama: nothing differs, and nothing was done" in same
    patient = {**first, "restarts": {"crashes": 9}}
    told = shell("submit", shell.write("llama", **patient), "--replace", "--no-follow")
    assert "  spec.restarts.crashes: " in told
    assert "asked to save and stop" not in told
    wrong = {**first, "slices": 0}
    YAML().dump(
        {**container_manifest("llama"), "spec": wrong | {"accelerator": "cpu:2x1"}}, shell.folder / "wrong.yaml"
    )
    assert "slices" in shell("submit", "wrong.yaml", "--replace", "--no-follow", code=78)
    assert jobs.get("llama")["spec"].get("suspend") in (None, False), "it goes on"
    assert jobs.get("llama")["status"]["phase"] == "Running"

    changed = {**patient, "command": ["python3", "train.py", "--longer"], "env": None}
    file = shell.write("llama", **changed)
    rehearsed = shell("submit", file, "--replace", "--dry-run")
    assert "llama: would be changed" in rehearsed
    assert jobs.get("llama")["spec"].get("suspend") in (None, False)
    told = shell("submit", file, "--replace", "--no-follow")
    assert "llama: asked to save and stop" in told
    assert '  spec.command: ["python3", "train.py"] → ["python3", "train.py", "--longer"]' in told
    assert "  spec.env: gone, it was [{" in told
    again = jobs.wait_pods("llama", other_than=pods)
    assert again[0]["spec"]["containers"][0]["command"][-1] == "--longer"
    assert jobs.get("llama")["spec"].get("suspend") in (None, False)

    jobs.finish("llama")
    jobs.wait_phase("llama", "Succeeded")
    assert "llama has succeeded, and stays as it was" in shell(
        "submit", shell.write("llama", **first), "--replace", code=78
    )


def test_kubectl_finds_the_plugin(shell: Shell, jobs: Jobs) -> None:
    shell("submit", shell.write("plugged"), "--no-follow")
    scripts = Path(sys.executable).parent
    told = subprocess.run(
        [str(binaries.path("kubectl")), "tpujob", "get", "-n", jobs.namespace],
        env=shell.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[1].split()[:2] == ["plugged", "cpu:2x1"]


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


def test_pods_with_the_labels_of_a_job_and_another_owner_are_no_pods_of_it(shell: Shell, jobs: Jobs) -> None:
    """A neighbour's pods, which can have all labels of the job."""
    shell("submit", shell.write("honest"), "--no-follow")
    first, _ = jobs.run("honest")
    metadata = first["metadata"]
    (owner,) = metadata["ownerReferences"]
    for number, owners in enumerate([[], [owner | {"controller": False}]]):
        labels = metadata["labels"] | ({} if owners else {kubernetes_names.COMPLETION_INDEX: "nonsense"})
        # By this one the Job controller would adopt them.
        labels = {name: value for name, value in labels.items() if not name.endswith("controller-uid")}
        forged = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"a-stranger-{number}", "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [{"name": "main", "image": "stranger"}]},
        }
        pods.set_running(jobs.api, jobs.api.create(f"/api/v1/namespaces/{jobs.namespace}/pods", forged))
    assert len(json.loads(shell("describe", "honest", "-o", "json"))["pods"]) == 2
    assert shell("logs", "honest").count("host 0 | ") == 1


def test_doctor_names_what_is_there_and_what_is_missing(shell: Shell, jobs: Jobs, operator: OperatorProcess) -> None:
    # JobSet, too, is a process here: a Deployment of an older release, whose pods nobody makes, stands for it.
    labels = {"app.kubernetes.io/name": "jobset"}
    pod = {"containers": [{"name": "manager", "image": "registry.k8s.io/jobset/jobset:v0.11.1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "jobset-controller-manager", "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }
    jobs.api.create(f"/apis/apps/v1/namespaces/{jobs.namespace}/deployments", deployment)
    told = shell("doctor", code=1)
    assert "ok       Kubernetes: the API server is v1." in told
    assert f"JobSet: {jobs.namespace}/jobset-controller-manager is v0.11.1; tpujob needs 0.12 or newer" in told
    assert "ok       JobSet: jobset.x-k8s.io/v1alpha2 is installed" in told
    # The operator has no such Deployment.
    assert "missing  operator: no Deployment" in told
    assert "→ helm install tpujob" in told
    verdicts = {result["subject"]: result["verdict"] for result in json.loads(shell("doctor", "-o", "json", code=1))}
    assert verdicts["TpuTrainingJob"] == "ok"
    assert verdicts["your rights"] == "ok"


def test_what_is_not_refused_is_read_as_kubectl_reads_it(control_plane: ControlPlane) -> None:
    values = [*READ_ALIKE, *READ_OTHERWISE]
    job = "apiVersion: tpujob.dev/v1beta1\nkind: TpuTrainingJob\nmetadata: {name: a}\nspec:\n"
    job += "".join(f"  - {value}\n" for value in values)
    options = ("--dry-run=client", "--validate=false", "--output=json", "--filename=-")
    by_kubectl = json.loads(control_plane.kubectl("create", *options, stdin=job))["spec"]
    ours = [json.dumps(read_value(value), default=repr) for value in values]
    otherwise = [value for value, own, its in zip(values, ours, map(json.dumps, by_kubectl), strict=True) if own != its]
    assert otherwise == READ_OTHERWISE


def test_doctor_names_an_image_that_no_node_can_pull(shell: Shell, jobs: Jobs) -> None:
    shell("submit", shell.write("mistyped"), "--no-follow")
    for pod in jobs.wait_pods("mistyped"):
        pods.set_waiting(jobs.api, pod, reason="ErrImagePull", message="manifest unknown")
    told = shell("doctor", code=1)
    assert told.count("ErrImagePull: manifest unknown") == 1
    assert "→ Check the image's name and tag (spec.image)" in told


@pytest.mark.parametrize("refused", [None, "host-0: spec.checkpointDir: cannot list"], ids=["allowed", "refused"])
def test_doctor_tries_a_bucket_from_a_pod_and_deletes_it(shell: Shell, jobs: Jobs, refused: str | None) -> None:
    trainer = {"model": {"preset": "tiny"}, "data": {"path": "/x", "tokenizer": "bytes"}, "steps": 1}
    file = shell.write("llama", accelerator="v5e-16", trainer=trainer, checkpointDir="gs://bucket/run", queue="team-a")
    with shell.start("doctor", "--probe", file, "-o", "json") as doctor:
        probe = wait_for("the job of the probe", lambda: jobs.api.items(jobs.path), timeout_seconds=180)[0]
        name = probe["metadata"]["name"]
        (pod,) = jobs.wait_pods(name, 1)
        assert pod["spec"]["containers"][0]["resources"].get("limits", {}).get("google.com/tpu") is None
        if refused is None:
            pods.set_succeeded(jobs.api, pod)
        else:
            jobs.end_pod(pod, exit_code=77, message=refused)
        results, errors = doctor.communicate(timeout=240)
    assert "Traceback" not in errors
    found = next(result for result in json.loads(results) if result["subject"] == "bucket")
    assert found["verdict"] == ("missing" if refused else "ok"), found
    assert (refused or "default wrote, listed, read and deleted an object in gs://bucket/run") in found["found"]
    wait_for("the job of the probe to be gone", lambda: not jobs.api.items(jobs.path), timeout_seconds=60)


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
