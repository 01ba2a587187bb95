"""The operator's pod, which some scenes end in their middle."""

import pytest

from tests.e2e.jobs import Jobs
from tests.e2e.waiting import wait_for

FATES = (
    pytest.param(False, id="operator-stays"),
    pytest.param(True, id="operator-is-killed", marks=pytest.mark.ends_operator),
)
"""What becomes of it in the middle of a scene, as parameters of a fixture; the scene ends the same."""
LABEL = "app.kubernetes.io/name=tpujob-operator"
DEPLOYMENT = ("deployment", f"--selector={LABEL}")


def kill(jobs: Jobs) -> None:
    """Ends the operator's pod without warning, and returns when the next one works."""
    client, namespace = jobs.cluster, jobs.surroundings.operator_namespace
    before = _names(jobs)
    if before:  # another scene may have ended it just now
        where = (f"--namespace={namespace}", "--ignore-not-found")
        client.kubectl("delete", "pods", *before, *where, "--force", "--grace-period=0")
    wait_for("another pod of the operator", lambda: set(_names(jobs)) - set(before), timeout_seconds=60)
    client.kubectl("rollout", "status", *DEPLOYMENT, f"--namespace={namespace}", "--timeout=120s")


def scale(jobs: Jobs, replicas: int) -> None:
    """Stops the operator, or starts it again; returns when that is so."""
    where = f"--namespace={jobs.surroundings.operator_namespace}"
    jobs.cluster.kubectl("scale", *DEPLOYMENT, where, f"--replicas={replicas}")
    if replicas:
        jobs.cluster.kubectl("rollout", "status", *DEPLOYMENT, where, "--timeout=120s")
    else:
        wait_for("the operator to be gone", lambda: not _names(jobs), timeout_seconds=60)


def _names(jobs: Jobs) -> list[str]:
    found = jobs.cluster.items("pods", jobs.surroundings.operator_namespace, LABEL)
    return [pod["metadata"]["name"] for pod in found]
