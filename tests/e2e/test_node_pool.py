"""Slices get a node pool of their topology to themselves: no other job's pod may be on the one node meanwhile."""

from collections.abc import Iterator

import pytest

from tests.e2e.jobs import PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.timeout(1200)]


@pytest.fixture
def jobs(jobs: Jobs) -> Iterator[Jobs]:
    """Jobs whose pods are gone afterwards.

    The scheduler tries a pod that an exclusive pod kept off the node again after up to five minutes only
    (kubernetes/kubernetes#134393, #141953), so the next test must not meet one.
    """
    yield jobs
    for name in ("chips", "fits"):
        jobs.delete(name)
    wait_for("the pods to go", lambda: not jobs.cluster.items("pods", jobs.namespace), timeout_seconds=PATIENCE_SECONDS)


def test_tpu_pods_land_on_the_node_pool_of_their_topology(jobs: Jobs) -> None:
    if not jobs.surroundings.is_own:
        pytest.skip("needs the node pool of `make cluster`: 4x4 of v5e, and no other")
    # The node is a TPU machine by its labels and chips alone: the requests of a real one would not fit.
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    jobs.run("chips", "print('on a TPU node')", accelerator="v5e-8", resources=small)
    jobs.run("fits", "print('on a TPU node')", accelerator="v5e-16", resources=small)

    jobs.wait(
        "chips",
        "a lack of nodes",
        lambda status: (
            status.get("phase") in ("Starting", "WaitingForCapacity", "Queued") and is_unscheduled(jobs, "chips")
        ),
    )
    wait_for(
        "a pod of the other on the node",
        lambda: any("nodeName" in pod["spec"] for pod in jobs.pods("fits")),
        timeout_seconds=PATIENCE_SECONDS,
        explain=lambda: jobs.explain("fits"),
    )


def is_unscheduled(jobs: Jobs, name: str) -> bool:
    conditions = [condition for pod in jobs.pods(name) for condition in pod["status"].get("conditions", [])]
    return any(condition.get("reason") == "Unschedulable" for condition in conditions)
