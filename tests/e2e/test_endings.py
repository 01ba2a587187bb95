"""Exit codes, alone and two at the same moment in different slices: which end the job, restart it, and count."""

import pytest

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

ONE_HOST_ENDS = """
import os, signal, sys
if os.environ["TPUJOB_HOST"] == "1":
    print("the bucket does not know this account")
    sys.exit({code})
signal.pause()
"""


@pytest.mark.parametrize("code", [76, 77, 78])
def test_code_that_no_restart_can_help_ends_the_job(jobs: Jobs, code: int) -> None:
    jobs.run("job", ONE_HOST_ENDS.format(code=code), gracePeriodSeconds=15)

    status = jobs.wait_phase("job", "Failed")

    assert status["failure"]["host"] == "slice 0 host 1"
    assert status["failure"]["exitCode"] == code
    assert "does not know this account" in status["failure"]["message"]
    assert status.get("restarts.total", 0) == 0


@pytest.mark.parametrize(("code", "crashes"), [(1, 1), (75, 0)])
def test_code_that_may_pass_restarts_the_job(jobs: Jobs, code: int, crashes: int) -> None:
    program = "import os, sys\nfirst = os.environ['TPUJOB_ATTEMPT'] == '0' and os.environ['TPUJOB_HOST'] == '1'\n"

    jobs.run("job", f"{program}sys.exit({code} if first else 0)")

    status = jobs.wait_phase("job", "Succeeded")
    assert status["restarts.total"] == 1
    assert status.get("restarts.charged", 0) == crashes


# The slices meet, and leave at the same moment, each with its own code; in the next attempt the job goes on for long.
BOTH_SLICES_END = """
import os, signal, socket, sys, time
if os.environ["TPUJOB_ATTEMPT"] != "0":
    signal.pause()
host, _, port = os.environ["TPUJOB_COORDINATOR"].rpartition(":")
deadline = time.monotonic() + 250
if os.environ["TPUJOB_SLICE"] == "0":
    server = socket.create_server(("", int(port)))
    server.settimeout(250)
    server.accept()
    sys.exit({first})
while True:
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        sys.exit({second})
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("first", "second", "place"), [(1, 77, "slice 1"), (77, 1, "slice 0"), (75, 77, "slice 1"), (77, 75, "slice 0")]
)
def test_code_that_no_restart_can_help_wins(jobs: Jobs, first: int, second: int, place: str) -> None:
    program = BOTH_SLICES_END.format(first=first, second=second)

    jobs.run("job", program, accelerator="cpu:1x1", slices=2, gracePeriodSeconds=15)

    status = jobs.wait_phase("job", "Failed")
    assert status["failure"]["exitCode"] == 77
    assert status["failure"]["host"] == f"{place} host 0"


def test_crash_counts_although_another_slice_stopped_in_order(jobs: Jobs) -> None:
    program = BOTH_SLICES_END.format(first=75, second=1)

    jobs.run("job", program, accelerator="cpu:1x1", slices=2, gracePeriodSeconds=15)

    status = jobs.wait("job", "a restart", lambda status: status.get("restarts.total"))
    status = jobs.wait("job", "the second attempt", lambda status: status.get("phase") == "Running")
    assert status["restarts.total"] == 1
    assert status["restarts.charged"] == 1
    assert status["failure"]["exitCode"] == 1
