"""The operator is killed in the middle of things, and they end as if it had not been."""

import pytest

from tests.cluster.product import NAMESPACE
from tests.cluster.waiting import wait_for
from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OPERATOR = ("--selector=app.kubernetes.io/name=tpujob-operator", f"--namespace={NAMESPACE}")
SLEEP = "import time; time.sleep({seconds})"
FAIL_ONCE = """
import os, sys, time
time.sleep(3)
sys.exit(1 if os.environ["TPUJOB_ATTEMPT"] == "0" and os.environ["TPUJOB_HOST"] == "1" else 0)
"""


def kill_operator(jobs: Jobs) -> None:
    jobs.cluster.kubectl("delete", "pod", *OPERATOR, "--force", "--grace-period=0")


def test_new_job_is_run_by_the_next_operator(jobs: Jobs) -> None:
    jobs.run("job", SLEEP.format(seconds=1))
    kill_operator(jobs)

    status = jobs.wait_phase("job", "Succeeded")

    assert status["incarnation"] == 1
    assert len(jobs.pods("job")) == 2


def test_restart_while_it_was_away_is_counted_once(jobs: Jobs) -> None:
    jobs.run("job", FAIL_ONCE)
    jobs.wait_phase("job", "Running")

    kill_operator(jobs)

    assert jobs.wait_phase("job", "Succeeded")["restarts"] == 1


def test_suspension_and_its_end_survive_it(jobs: Jobs) -> None:
    jobs.run("job", SLEEP.format(seconds=600), gracePeriodSeconds=15)
    jobs.wait_phase("job", "Running")

    jobs.patch("job", suspend=True)
    kill_operator(jobs)
    jobs.wait_phase("job", "Suspended")
    wait_for("its pods to be gone", lambda: jobs.pods("job") == [])

    jobs.patch("job", suspend=False)
    kill_operator(jobs)
    jobs.wait_phase("job", "Running")


def test_deleted_job_goes_without_it(jobs: Jobs) -> None:
    jobs.run("job", SLEEP.format(seconds=600), gracePeriodSeconds=15)
    jobs.wait_phase("job", "Running")

    kill_operator(jobs)
    jobs.cluster.kubectl("delete", "ttj", "job", f"--namespace={jobs.namespace}", "--timeout=120s")

    wait_for("its JobSet to be gone", lambda: jobs.cluster.get("jobset", "job", jobs.namespace) is None)
    wait_for("its pods to be gone", lambda: jobs.pods("job") == [], timeout_seconds=60)
