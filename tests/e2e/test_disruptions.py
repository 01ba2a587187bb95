"""What ends a pod restarts the job, and it goes on from the last committed step."""

from collections.abc import Callable

import pytest

from tests.cluster.api import Object
from tests.cluster.waiting import wait_for
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# The trainer's process under the launcher, which is process 1 and cannot be killed from inside its container.
KILL_TRAINER = """
import os, pathlib, signal
for process in pathlib.Path("/proc").iterdir():
    if process.name.isdigit() and process.name != "1":
        command = (process / "cmdline").read_bytes().split(b"\\0")
        if b"tpujob_trainer" in command:
            os.kill(int(process.name), signal.SIGKILL)
"""


def delete(jobs: Jobs, pod: str) -> None:
    jobs.cluster.kubectl("delete", "pod", pod, f"--namespace={jobs.namespace}", "--wait=false")


def evict(jobs: Jobs, pod: str) -> None:
    eviction = f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{pod}"}}}}'
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}/eviction"
    jobs.cluster.kubectl("create", f"--raw={path}", "--filename=-", stdin=eviction)


def kill(jobs: Jobs, pod: str) -> None:
    jobs.cluster.kubectl("exec", pod, f"--namespace={jobs.namespace}", "--", "python", "-c", KILL_TRAINER)


@pytest.mark.parametrize("end", [delete, evict, kill])
def test_job_goes_on_from_the_last_committed_step(jobs: Jobs, end: Callable[[Jobs, str], None]) -> None:
    jobs.train("job", steps=FOR_EVER, every_steps=20)
    status = jobs.wait("job", "a committed checkpoint", lambda status: status.get("lastCheckpointStep"))
    committed = status["lastCheckpointStep"]
    before = jobs.pods("job")

    end(jobs, before[1]["metadata"]["name"])

    wait_for(
        "new pods of both hosts",
        lambda: are_all_new(jobs.pods("job"), before),
        timeout_seconds=PATIENCE_SECONDS,
        explain=lambda: jobs.explain("job"),
    )
    restored = wait_for("processes that went on", lambda: went_on(jobs), timeout_seconds=PATIENCE_SECONDS)
    assert restored >= committed
    status = jobs.wait("job", "a later step", lambda status: (status.get("step") or 0) > restored)
    assert status["restarts"] == 1
    assert status["phase"] == "Running"


def went_on(jobs: Jobs) -> int | None:
    """The step from which all processes went on, once they agree on one."""
    steps = jobs.restored_from()
    return steps.pop() if len(steps) == 1 else None


def are_all_new(pods: list[Object], before: list[Object]) -> bool:
    old = {pod["metadata"]["uid"] for pod in before}
    return len(pods) == len(before) and not old & {pod["metadata"]["uid"] for pod in pods}


END = """
import os, sys, time
if os.environ["TPUJOB_HOST"] == "1":
    print("the bucket does not know this account")
    sys.exit({code})
time.sleep(600)
"""


@pytest.mark.parametrize("code", [76, 77, 78])
def test_code_that_no_restart_can_help_ends_the_job(jobs: Jobs, code: int) -> None:
    jobs.run("job", END.format(code=code))

    status = jobs.wait_phase("job", "Failed")

    assert status["failure"]["host"] == "slice 0 host 1"
    assert status["failure"]["exitCode"] == code
    assert "does not know this account" in status["failure"]["message"]
    assert status.get("restarts", 0) == 0


@pytest.mark.parametrize("code", [1, 75])
def test_code_that_may_pass_restarts_the_job(jobs: Jobs, code: int) -> None:
    program = "import os, sys\nfirst = os.environ['TPUJOB_ATTEMPT'] == '0' and os.environ['TPUJOB_HOST'] == '1'\n"

    jobs.run("job", f"{program}sys.exit({code} if first else 0)")

    status = jobs.wait_phase("job", "Succeeded")
    assert status["restarts"] == 1
