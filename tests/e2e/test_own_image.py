"""What the pages tell somebody with an image of their own to type, typed at real pods."""

import shutil
from pathlib import Path

import pytest

from tests.docs.newcomer import Newcomer, block, commands
from tests.e2e.host_folders import claimed, writable
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tests.harness.local_run import write_job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

PAGE = ("docs/bring-your-own.md", "Image")
CHECKPOINTS = "/mnt/checkpoints"
KEEPS_THE_RULES = """
import os, pathlib, signal, sys
saved = pathlib.Path(os.environ["TPUJOB_CHECKPOINT_DIR"], os.environ["JAX_PROCESS_ID"])
if saved.exists():
    print("restored from", saved.read_text(), flush=True)
    sys.exit()

def save(*_):
    saved.parent.mkdir(exist_ok=True)
    saved.write_text("step 7")
    sys.exit(75)

signal.signal(signal.SIGTERM, save)
print("began", flush=True)
while True:
    signal.pause()
"""
"""A program that saves and exits with 75 when it is asked to stop, and restores when it is started."""


@pytest.fixture
def stranger(jobs: Jobs, tmp_path: Path) -> Newcomer:
    """Somebody whose kubeconfig names the namespace."""
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(jobs.surroundings.kubeconfig, kubeconfig)
    stranger = Newcomer(tmp_path, kubeconfig, Path(jobs.cluster.program("kubectl")).parent)
    stranger.types(f"kubectl config set-context --current --namespace={jobs.namespace}")
    return stranger


def test_commands_of_the_page_run_an_image(stranger: Newcomer, jobs: Jobs) -> None:
    image = jobs.surroundings.jax_image
    if image is None:
        pytest.skip("no image is given for it: build examples/any-container and name it with E2E_JAX_IMAGE")
    submit, get, logs = commands(*PAGE)
    (stranger.folder / "own-image.yaml").write_text(block(*PAGE, "yaml"))
    stranger.edits("own-image.yaml", "v5e-16", "cpu:2x2")
    stranger.edits("own-image.yaml", "registry.example.com/me/train:1", f"{image}\n  imagePullPolicy: IfNotPresent")

    assert "own-image: created" in stranger.types(submit)
    jobs.wait_phase("own-image", "Succeeded")
    assert stranger.types(get).splitlines()[1].split()[:3] == ["own-image", "cpu:2x2", "Succeeded"]
    said = stranger.types(logs)
    assert 'slice 0 host 0 | {"process": 0, "processes": 2' in said
    assert 'slice 0 host 1 | {"process": 1, "processes": 2' in said


def test_own_program_is_stopped_and_resumed(stranger: Newcomer, jobs: Jobs, tmp_path: Path) -> None:
    if not jobs.surroundings.is_own:
        pytest.skip("saves to a folder of the node of `make cluster`")
    volume = {"name": "checkpoints", "mountPath": CHECKPOINTS, "persistentVolumeClaim": "checkpoints"}
    spec = {
        "accelerator": "cpu:2x1",
        "image": jobs.surroundings.python_image,
        "command": ["python3", "-c", KEEPS_THE_RULES],
        "checkpointDir": f"{CHECKPOINTS}/own",
        "volumes": [volume],
    }
    write_job(stranger.folder / "own.yaml", "own", spec)

    with claimed(jobs, {"checkpoints": writable(tmp_path / "checkpoints")}):
        stranger.types("tpujob submit own.yaml --no-follow")
        both_say(stranger, jobs, "began")
        stopped = stranger.types("tpujob stop own")
        assert "Suspended" in stopped
        assert jobs.pods("own") == []
        assert "tpujob resume own" in stranger.types("tpujob describe own")

        stranger.types("tpujob resume own")
        jobs.wait_phase("own", "Succeeded")
        both_say(stranger, jobs, "restored from step 7")
        assert stranger.types("tpujob get own").splitlines()[1].split()[:3] == ["own", "cpu:2x1", "Succeeded"]


def both_say(stranger: Newcomer, jobs: Jobs, line: str) -> None:
    """Waits until `tpujob logs` has a line of both hosts."""
    jobs.wait("own", "pods that ran", lambda status: status.get("phase") in ("Running", "Succeeded"))
    wait_for(
        f"{line!r} of both hosts",
        lambda: all(f"slice 0 host {host} | {line}" in stranger.types("tpujob logs own") for host in (0, 1)),
        timeout_seconds=PATIENCE_SECONDS,
        explain=lambda: stranger.types("tpujob logs own"),
    )
