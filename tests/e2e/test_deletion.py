"""Namespaces go with the jobs in them."""

import pytest

from tests.e2e import operator_pod
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

ENDLESS = "import signal; signal.pause()"
GRACE_SECONDS = 15


def test_namespace_of_a_running_job_can_be_deleted(jobs: Jobs) -> None:
    jobs.run("job", ENDLESS, gracePeriodSeconds=GRACE_SECONDS)
    jobs.wait_phase("job", "Running")

    jobs.cluster.kubectl("delete", "namespace", jobs.namespace, f"--timeout={PATIENCE_SECONDS:.0f}s")


@pytest.mark.ends_operator
def test_namespace_can_be_deleted_without_the_operator(jobs: Jobs) -> None:
    jobs.run("job", ENDLESS, gracePeriodSeconds=GRACE_SECONDS)
    jobs.wait_phase("job", "Running")
    operator_pod.scale(jobs, 0)
    try:
        jobs.cluster.kubectl("delete", "namespace", jobs.namespace, f"--timeout={PATIENCE_SECONDS:.0f}s")
        wait_for("the namespace to be gone", lambda: not jobs.cluster.get("namespace", jobs.namespace, ""))
    finally:
        operator_pod.scale(jobs, 1)
