"""An unmodified MaxText of the package index in real pods: a pod is lost in the middle, and the losses are the same.

`make e2e-maxtext` installs it into .cache/maxtext-pods, for the Python of the node's images; pods have that folder as a
volume. So the node stores it once, and not in each layer of an image.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host_folders import claimed, writable
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".cache" / "maxtext-pods"
PROGRAM = ROOT / "images" / "maxtext" / "maxtext-train"
STEPS, PERIOD = 20, 5
SMALL = {
    "hardware": "cpu",
    "dataset_type": "synthetic",
    "base_emb_dim": 128,
    "base_mlp_dim": 512,
    "base_num_query_heads": 4,
    "base_num_kv_heads": 4,
    "head_dim": 32,
    "base_num_decoder_layers": 2,
    "vocab_size": 2048,
    "max_target_length": 256,
    "per_device_batch_size": 8,
    "async_checkpointing": "false",
    "attention": "dot_product",
    "enable_goodput_recording": "false",
    "enable_tensorboard": "false",
}
"""Steps of about a second, so that a pod can be deleted between two of them."""
MOUNTS = {"maxtext": "/opt/maxtext", "checkpoints": "/mnt/checkpoints"}
LONG_SECONDS = 4 * PATIENCE_SECONDS
"""MaxText's own imports and compilation, twice on one machine."""


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Where all jobs save, as a folder of this machine."""
    return writable(tmp_path / "checkpoints")


@pytest.fixture
def maxtext(jobs: Jobs, checkpoints: Path) -> Iterator[Jobs]:
    """A namespace whose jobs can have MaxText, its program and the checkpoints as volumes."""
    if not jobs.surroundings.is_own or not (INSTALLED / "installed").exists():
        pytest.skip("MaxText is not installed for pods; `make e2e-maxtext` does it")
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "program", "namespace": jobs.namespace},
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }
    jobs.cluster.apply(config)
    with claimed(jobs, {"maxtext": INSTALLED, "checkpoints": checkpoints}):
        yield jobs


def start(jobs: Jobs, name: str) -> None:
    volumes: list[dict[str, Any]] = [
        {"name": claim, "mountPath": path, "persistentVolumeClaim": claim, "readOnly": claim == "maxtext"}
        for claim, path in MOUNTS.items()
    ]
    settings = {"steps": STEPS, "checkpoint_period": PERIOD, **SMALL}
    jobs.apply(
        name,
        framework="maxtext",
        image=jobs.surroundings.python_image,
        command=["python3", f"/opt/program/{PROGRAM.name}", *(f"{key}={value}" for key, value in settings.items())],
        volumes=[*volumes, {"name": "program", "mountPath": "/opt/program", "configMap": "program"}],
        checkpointDir=f"{MOUNTS['checkpoints']}/{name}",
        env=[
            {"name": "PYTHONPATH", "value": MOUNTS["maxtext"]},
            # What is compiled of thousands of modules, for all pods together.
            {"name": "PYTHONPYCACHEPREFIX", "value": f"{MOUNTS['checkpoints']}/compiled"},
        ],
    )


def saved_steps(folder: Path) -> list[int]:
    """Steps of committed checkpoints, ascending."""
    return sorted(int(found.name) for found in folder.glob("*/checkpoints/*") if found.name.isdigit())


def losses(jobs: Jobs, name: str) -> dict[int, str]:
    """By step, as process 0 of the newest attempt printed them."""
    text = jobs.logs(jobs.pods(name)[0])
    return {int(step): loss for step, loss in re.findall(r"completed step: (\d+),.*? loss: ([\d.]+),", text)}


def test_maxtext_that_lost_a_pod_resumes_with_the_same_losses(maxtext: Jobs, checkpoints: Path) -> None:
    start(maxtext, "undisturbed")
    status = maxtext.wait_phase("undisturbed", "Succeeded", seconds=LONG_SECONDS)
    expected = losses(maxtext, "undisturbed")
    assert sorted(expected) == list(range(STEPS))
    assert status["step"] == STEPS
    assert f"{status['loss']:.3f}" == expected[STEPS - 1]
    assert status["lastCheckpointStep"] == saved_steps(checkpoints / "undisturbed")[-1] + 1
    assert not status.get("restarts.total")

    start(maxtext, "preempted")
    wait_for(
        "a checkpoint",
        lambda: PERIOD in saved_steps(checkpoints / "preempted"),
        timeout_seconds=LONG_SECONDS,
        explain=lambda: maxtext.explain("preempted"),
    )
    before = {pod["metadata"]["uid"] for pod in maxtext.pods("preempted")}
    host_1 = maxtext.pods("preempted")[1]["metadata"]["name"]
    maxtext.cluster.kubectl("delete", "pod", host_1, f"--namespace={maxtext.namespace}", "--wait=false")
    status = maxtext.wait_phase("preempted", "Succeeded", seconds=LONG_SECONDS)

    assert status["restarts.total"] == 1
    assert not before & {pod["metadata"]["uid"] for pod in maxtext.pods("preempted")}
    resumed = losses(maxtext, "preempted")
    assert PERIOD < min(resumed) < STEPS, "it began with the step after a checkpoint"
    assert resumed == {step: expected[step] for step in range(min(resumed), STEPS)}
    assert (status["step"], f"{status['loss']:.3f}") == (STEPS, expected[STEPS - 1])
