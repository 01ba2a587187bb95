"""examples/any-container.yaml: a plain JAX script in an image without our code finds its place on four hosts."""

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FILE = Path(__file__).parents[2] / "examples" / "any-container.yaml"
JOB = "any-container"


def test_plain_script_trains_on_two_slices_of_two_hosts(jobs: Jobs) -> None:
    image = jobs.surroundings.jax_image
    if image is None:
        pytest.skip("no image is given for it: build examples/any-container and name it with E2E_JAX_IMAGE")
    job = yaml.safe_load(FILE.read_text())
    if not jobs.surroundings.is_own:
        job["spec"]["image"] = image
    jobs.cluster.kubectl("apply", f"--namespace={jobs.namespace}", "--filename=-", stdin=json.dumps(job))

    jobs.wait_phase(JOB, "Succeeded")

    told = {place(pod): jobs.told(pod) for pod in jobs.pods(JOB)}
    # slice * hosts per slice + host
    assert {place: result["process"] for place, result in told.items()} == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
    for result in told.values():
        assert (result["processes"], result["devices"]) == (4, 8)
        assert result["weights"] == pytest.approx(range(8), abs=0.1)
    assert len({tuple(result["weights"]) for result in told.values()}) == 1


def place(pod: dict) -> tuple[int, int]:
    """Slice and host."""
    labels = pod["metadata"]["labels"]
    return int(labels["jobset.sigs.k8s.io/job-index"]), int(labels["batch.kubernetes.io/job-completion-index"])
