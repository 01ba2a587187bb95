"""A suspended job gives its pods back with its state saved, and goes on where it was."""

import pytest

from tests.cluster.waiting import wait_for
from tests.e2e.jobs import FOR_EVER, Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

GRACE_SECONDS = 60
EXIT_CODE_STOPPED = 75


def test_suspended_job_saves_and_goes_on(jobs: Jobs) -> None:
    jobs.train("job", steps=FOR_EVER, gracePeriodSeconds=GRACE_SECONDS)
    jobs.wait("job", "a step without a checkpoint", lambda status: (status.get("step") or 0) > 5)

    jobs.patch("job", suspend=True)

    wait_for("its pods to be gone", lambda: jobs.pods("job") == [], timeout_seconds=GRACE_SECONDS + 15)
    jobs.wait_phase("job", "Suspended", seconds=15)
    saved = max(int(name.split("/")[1]) for name in jobs.objects("job", "steps/"))
    assert saved > 5

    jobs.patch("job", suspend=False)

    jobs.wait("job", "a step after the saved one", lambda status: (status.get("step") or 0) > saved)
    wait_for("its processes to say where they went on", lambda: jobs.restored_from() == {saved})
    assert [attempt["exit_code"] for attempt in jobs.attempts("job")[:1]] == [EXIT_CODE_STOPPED]
