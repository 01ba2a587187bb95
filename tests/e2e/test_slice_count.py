"""Four slices, of which two lose their machines to a pod of higher priority and get them back: 4, 2, 4 of real pods.

It asks for all the memory of the node, and so is played by name alone: E2E_FILL_NODE=yes make e2e K=four_slices_two.
"""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object
from tpujob_contract.quantity import quantity
from tpujob_operator.observe.free_slices import pod_amounts

FILL_NODE = "E2E_FILL_NODE"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.afterwards,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        FILL_NODE not in os.environ, reason=f"asks for all memory of the node: {FILL_NODE}=yes plays it"
    ),
]

JOB = "llama"
INTRUDER = "intruder"
MIB = 2**20
SECONDS_BETWEEN_SAVES = 5


@pytest.fixture
def jobs(jobs: Jobs) -> Iterator[Jobs]:
    """Without the job and the priority class afterwards."""
    if not jobs.surroundings.is_own:
        pytest.skip("fills the one node of `make cluster`")
    yield jobs
    jobs.delete(JOB)
    jobs.cluster.kubectl("delete", "priorityclass", jobs.namespace, "--ignore-not-found")


def free_mebibytes(jobs: Jobs) -> int:
    """Memory of the one node that no pod has asked for."""
    (node,) = jobs.cluster.items("nodes", jobs.namespace)
    pods = jobs.cluster.items("pods", jobs.namespace, everywhere=True)
    running = [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
    asked = sum(pod_amounts(pod["spec"]).get("memory", 0) for pod in running)
    allocatable = quantity(node["status"]["allocatable"]["memory"])
    assert allocatable is not None
    return int((allocatable - asked) // MIB)


def take_machines(jobs: Jobs, mebibytes: int) -> None:
    """Starts a pod of another's that is more important and as large as two slices."""
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": jobs.namespace},
        "value": 1000,
    }
    container = {
        "name": "main",
        "image": jobs.surroundings.python_image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "resources": {"requests": {"memory": f"{mebibytes}Mi"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": INTRUDER, "namespace": jobs.namespace},
        "spec": {
            "priorityClassName": jobs.namespace,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    jobs.cluster.apply(priority, pod)


def pods_of(jobs: Jobs, incarnation: int) -> list[Object]:
    return [
        pod
        for pod in jobs.pods(JOB)
        if pod["metadata"]["labels"]["tpujob.dev/incarnation"] == str(incarnation)
        and "deletionTimestamp" not in pod["metadata"]
    ]


def wait_for_checkpoint(jobs: Jobs, began: int) -> None:
    jobs.wait(JOB, "a checkpoint since its start", lambda status: (status.get("lastCheckpointStep") or 0) > began)


def test_four_slices_two_and_four_again(jobs: Jobs) -> None:
    each = free_mebibytes(jobs) * 2 // 9  # four fit, and a fifth does not
    jobs.train(
        JOB,
        steps=FOR_EVER,
        checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES},
        accelerator="cpu:1x1",
        slices=4,
        minSlices=2,
        shrinkAfterSeconds=30,
        resources={"requests": {"memory": f"{each}Mi"}},
    )
    wait_for_checkpoint(jobs, jobs.wait_until_it_trains(JOB, hosts=4))

    take_machines(jobs, 2 * each)
    jobs.wait(
        JOB,
        "two slices",
        lambda s: s.get("slices.current") == 2 and s["incarnation"] == 2,
        seconds=2 * PATIENCE_SECONDS,
    )
    with_two = jobs.wait_until_it_trains(JOB, hosts=2)
    assert with_two > 0
    wait_for_checkpoint(jobs, with_two)
    assert len(pods_of(jobs, 2)) == 2

    jobs.cluster.kubectl("delete", "pod", INTRUDER, f"--namespace={jobs.namespace}")
    jobs.wait(
        JOB,
        "four slices",
        lambda s: s.get("slices.current") == 4 and s["incarnation"] == 3,
        seconds=2 * PATIENCE_SECONDS,
    )
    wait_for("four pods", lambda: len(pods_of(jobs, 3)) == 4, timeout_seconds=PATIENCE_SECONDS)
    with_four = jobs.wait_until_it_trains(JOB, hosts=4)
    assert with_four > with_two
    log = jobs.logs(pods_of(jobs, 3)[0])
    assert f"Step {with_four} goes on from the batches it was saved after: digest=" in log

    status = jobs.wait(JOB, "all of it to run", lambda s: s["phase"] == "Running" and s.get("hostsReady") == 4)
    assert (status["slices.resizes"], status.get("restarts.charged", 0)) == (2, 0)
    assert next(c["status"] for c in status["conditions"] if c["type"] == "FullSize") == "True"
