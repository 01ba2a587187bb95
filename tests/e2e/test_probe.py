"""`tpujob doctor --probe` from a terminal: pods of its own try image and bucket, and nothing of them stays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import PATIENCE, Jobs
from tests.e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

TRAINER = {"model": {"preset": "tiny"}, "data": {"path": "/dev/null", "tokenizer": "bytes"}, "steps": 1}


def probe(jobs: Jobs, folder: Path, **spec: Any) -> dict[str, dict[str, str]]:
    """Results of the doctor by their subject, for a job of these fields."""
    env = [{"name": name, "value": value} for name, value in jobs.surroundings.job_environment.items()]
    kind = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": "llama"}}
    job = folder / "job.yaml"
    job.write_text(json.dumps({**kind, "spec": {"accelerator": "v5e-16", "env": env, **spec}}))
    done = subprocess.run(
        [sys.executable, "-m", "tpujob", "doctor", f"--probe={job}", f"--namespace={jobs.namespace}", "-o", "json"],
        env={**os.environ, "KUBECONFIG": jobs.surroundings.kubeconfig},
        capture_output=True,
        text=True,
        timeout=400 * PATIENCE,
    )
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    left = lambda: jobs.cluster.items("ttj", jobs.namespace) + jobs.cluster.items("pods", jobs.namespace)  # noqa: E731
    wait_for("the probes to be gone", lambda: not left(), explain=lambda: json.dumps(left())[:2000])
    results: list[dict[str, str]] = json.loads(done.stdout)
    return {result["subject"]: result for result in results}


def test_pod_of_the_doctor_uses_the_bucket_and_leaves_nothing(jobs: Jobs, tmp_path: Path) -> None:
    found = probe(jobs, tmp_path, trainer=TRAINER, checkpointDir=jobs.checkpoint_dir("probed"))["bucket"]
    assert found["verdict"] == "ok", found
    assert f"default wrote, listed, read and deleted an object in {jobs.checkpoint_dir('probed')}" in found["found"]
    assert jobs.objects("probed") == {}


def test_pod_of_the_doctor_names_a_bucket_that_is_not_there(jobs: Jobs, tmp_path: Path) -> None:
    found = probe(jobs, tmp_path, trainer=TRAINER, checkpointDir="gs://no-such-bucket-here/run")["bucket"]
    assert found["verdict"] == "missing"
    assert "spec.checkpointDir: gs://no-such-bucket-here/run: cannot write tpujob-probe-" in found["found"]


def test_pod_of_the_doctor_names_an_image_that_is_not_there(jobs: Jobs, tmp_path: Path) -> None:
    spec = {"image": "localhost/no/such:image", "imagePullPolicy": "IfNotPresent", "command": ["train"]}
    found = probe(jobs, tmp_path, **spec)["image"]
    assert found["verdict"] == "missing"
    assert "localhost/no/such:image" in found["found"]


def test_pod_of_the_doctor_starts_a_foreign_image(jobs: Jobs, tmp_path: Path) -> None:
    found = probe(jobs, tmp_path, image=jobs.surroundings.python_image, command=["train"])["image"]
    assert found["verdict"] == "ok", found
