"""What the pages tell a newcomer to type at a cluster, typed at a real API server, whose pods are played."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.newcomer import ROOT, Newcomer, block, commands, section
from tests.harness.jobs import Jobs
from tools.localcluster import binaries, pods
from tools.localcluster.api import Object
from tools.localcluster.nodes import create_node, delete_node
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

JOB = ("docs/gke.md", "A job, its status, its logs")
IMAGE = ("docs/bring-your-own.md", "Image")
HOSTS = 4
"""Of the v5e-16 that both pages ask for."""


@pytest.fixture
def newcomer(jobs: Jobs, tmp_path: Path) -> Newcomer:
    """Somebody whose kubeconfig names the namespace, as `kubectl config set-context` leaves it."""
    config = json.loads(jobs.plane.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = jobs.namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return Newcomer(tmp_path, kubeconfig, binaries.path("kubectl").parent)


@pytest.fixture
def node(jobs: Jobs) -> Iterator[str]:
    """A machine of a node pool. JobSet makes the other pods of a slice when it knows the pool of the first."""
    name = f"pool-{jobs.namespace[-6:]}"
    create_node(jobs.api, name, {"cloud.google.com/gke-nodepool": name})
    yield name
    delete_node(jobs.api, name)


def make_running(jobs: Jobs, name: str, node: str) -> list[Object]:
    """The pods of a job on one slice, all running."""
    (leader,) = jobs.wait_pods(name, 1)
    pods.bind(jobs.api, leader, node)
    found = jobs.wait_pods(name, HOSTS)
    for pod in found:
        if pod["metadata"]["name"] != leader["metadata"]["name"]:
            pods.bind(jobs.api, pod, node)
        pods.set_running(jobs.api, pod)
    jobs.wait_phase(name, "Running")
    return found


def test_a_job_is_submitted_seen_stopped_and_resumed(newcomer: Newcomer, jobs: Jobs, node: str) -> None:
    (account,) = re.findall(r"kubectl create serviceaccount .+", section("docs/gke.md", "Access to the bucket"))
    newcomer.types(account)
    (newcomer.folder / "first.yaml").write_text(block(*JOB, "yaml"))
    submit, get, describe, logs, stop, resume = commands(*JOB)

    assert "warning" not in newcomer.types(submit)
    found = make_running(jobs, "first", node)
    assert newcomer.types(get).splitlines()[1].split()[:4] == ["first", "v5e-16", "Running", "4/4"]
    assert "hosts: 4 of 4 ready" in newcomer.types(describe)
    assert "slice 0 host 3 | " in newcomer.types(logs)

    # As a context, which closes the pipe.
    with newcomer.start(stop) as stopping:
        wait_for("the request", lambda: (jobs.jobset("first") or {"spec": {}})["spec"].get("suspend"))
        for pod in found:
            jobs.end_deleted(pod, exit_code=75, message="asked to stop")
        assert stopping.stdout is not None
        assert "Suspended" in stopping.stdout.read()
    assert stopping.returncode == 0
    assert resume in newcomer.types(describe)
    assert "goes on" in newcomer.types(resume)

    # What the refusals advise.
    assert "`tpujob stop first`" not in newcomer.types(resume, code=78)
    refused = newcomer.types(submit, code=78)
    advised = re.search(r"`(kubectl delete ttj first)` deletes it", refused)
    assert advised, refused
    newcomer.types(advised[1])
    newcomer.types(submit)
    refused = newcomer.types(describe.replace("first", "frist"), code=77)
    there = re.search(r"there are (\w+)", refused)
    assert there, refused
    newcomer.types(describe.replace("first", there[1]))


def test_an_image_of_ones_own_is_seen_to_its_end(newcomer: Newcomer, jobs: Jobs, node: str) -> None:
    (newcomer.folder / "own-image.yaml").write_text(block(*IMAGE, "yaml"))
    submit, get, logs = commands(*IMAGE)
    assert "warning" not in newcomer.types(submit)
    found = make_running(jobs, "own-image", node)
    assert "slice 0 host 0 | " in newcomer.types(logs)
    for pod in found:
        pods.set_succeeded(jobs.api, pod)
    jobs.wait_phase("own-image", "Succeeded")
    assert newcomer.types(get).splitlines()[1].split()[:3] == ["own-image", "v5e-16", "Succeeded"]
    refused = newcomer.types("tpujob stop own-image", code=78)
    advised = re.search(r"`(tpujob retry)` starts it anew", refused)
    assert advised, refused
    assert "starts anew" in newcomer.types(f"{advised[1]} own-image")


def test_what_the_readme_says_of_kubectl_works(newcomer: Newcomer, jobs: Jobs) -> None:
    apply, get, explain = re.findall(r"^    (kubectl .+)", section("README.md", "On a cluster"), re.MULTILINE)
    newcomer.types(apply)
    jobs.run("quickstart")
    jobs.wait_phase("quickstart", "Running")
    assert newcomer.types(get).splitlines()[1].split()[:3] == ["quickstart", "cpu:2x4", "Running"]
    assert "accelerator" in newcomer.types(explain)


def test_a_folder_of_the_laptop_is_warned_about(newcomer: Newcomer) -> None:
    new = commands("README.md", "Your own text")[1]
    newcomer.types(new)
    said = newcomer.types("tpujob submit job.yaml --dry-run")
    advised = re.search(r'spec\.trainer\.data\.path: "(.+)" is relative, .*give (gs://\S+)', said)
    assert advised, said
    newcomer.edits("job.yaml", advised[1], advised[2])
    assert "is relative" not in newcomer.types("tpujob submit job.yaml --dry-run")
