"""What a job made goes with it, and what it trained stays."""

import pytest

from tests.cluster.product import NAMESPACE, RELEASE
from tests.cluster.waiting import wait_for
from tests.e2e.jobs import FOR_EVER, Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CHILDREN = ("jobsets", "jobs", "pods", "services", "networkpolicies")


def test_deleted_job_leaves_its_checkpoints_and_nothing_else(jobs: Jobs) -> None:
    jobs.train("job", steps=FOR_EVER, every_steps=20)
    jobs.wait("job", "a committed checkpoint", lambda status: status.get("lastCheckpointStep"))

    jobs.cluster.kubectl("delete", "ttj", "job", f"--namespace={jobs.namespace}", "--timeout=120s")

    wait_for(
        "its children to be gone", lambda: not children(jobs), timeout_seconds=120, explain=lambda: str(children(jobs))
    )
    assert any(name.startswith("steps/") for name in jobs.objects("job"))


def test_namespace_can_be_deleted_without_the_operator(jobs: Jobs) -> None:
    jobs.run("job", "import time; time.sleep(600)", gracePeriodSeconds=15)
    jobs.wait_phase("job", "Running")
    operator = ("deployment", "--selector=app.kubernetes.io/name=tpujob-operator", f"--namespace={NAMESPACE}")
    jobs.cluster.kubectl("scale", *operator, "--replicas=0")
    try:
        jobs.cluster.kubectl("delete", "namespace", jobs.namespace, "--timeout=120s")
    finally:
        jobs.cluster.kubectl("scale", *operator, "--replicas=1")
        jobs.cluster.kubectl("rollout", "status", *operator, "--timeout=120s")
    assert RELEASE in jobs.cluster.run_tool("helm", "list", f"--namespace={NAMESPACE}", "--short")


def children(jobs: Jobs) -> list[str]:
    kinds = ",".join(CHILDREN)
    return jobs.cluster.kubectl("get", kinds, f"--namespace={jobs.namespace}", "--output=name").split()
