"""A slice without machines for longer than its peers wait: JobSet restarts all, and the job is charged nothing."""

import pytest

from tests.harness.jobs import TIMEOUT_SECONDS, Jobs
from tests.scenes.control_plane.test_slice_count import WITHOUT_NODE, in_slices, leave_without_node
from tools.localcluster import pods
from tools.localcluster.api import Object
from tools.localcluster.waiting import wait_for
from tpujob_contract.exit_codes import ExitCode

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

NOT_ONE_CRASH = {"accelerator": "cpu:1x1", "slices": 2, "restarts": {"crashes": 0}}


def wait_without_machine(jobs: Jobs, found: dict[int, Object], attempt: int) -> None:
    """Slice 0 runs and waits for slice 1, which has no node."""
    pods.set_running(jobs.api, found[0], ready=False, pod_ip="10.1.0.1")
    leave_without_node(jobs, found[1])
    jobs.wait(
        "llama",
        f"to wait for machines in attempt {attempt}",
        lambda s: s["phase"] == "WaitingForCapacity" and s.get("internal.unschedulable", {}).get("attempt") == attempt,
    )


def give_up(jobs: Jobs, pod: Object) -> None:
    pods.set_failed(jobs.api, pod, exit_code=ExitCode.PEERS_MISSING, message="slice 1 host 0 did not come")


def test_peers_without_machines_are_no_crash(jobs: Jobs) -> None:
    jobs.create("llama", **NOT_ONE_CRASH)
    first = in_slices(jobs.wait_pods("llama", 2))
    wait_without_machine(jobs, first, 0)
    give_up(jobs, first[0])

    second = in_slices(jobs.wait_pods("llama", 2, other_than=list(first.values())))
    booked = jobs.wait("llama", "the restart to be judged", lambda s: s.get("internal.bookedRestarts") == 1)
    assert booked.get("restarts.capacity") == 1
    wait_without_machine(jobs, second, 1)
    give_up(jobs, second[0])

    status = jobs.wait("llama", "the second to be judged", lambda s: s.get("internal.bookedRestarts") == 2)
    assert status["restarts.capacity"] == 2
    assert status["phase"] != "Failed"
    assert not status.keys() & {"restarts.charged", "restarts.disruptions", "restarts.unexplained", "nodeFailures"}
    paused = wait_for("the pause to be told", lambda: told(jobs, "RestartPaused"), timeout_seconds=TIMEOUT_SECONDS)
    assert "No machine for slice 1 host 0" in paused
    assert WITHOUT_NODE["message"] in paused


def told(jobs: Jobs, reason: str) -> str | None:
    """The message of the job's Event of this reason."""
    return next((event["message"] for event in jobs.events("llama") if event["reason"] == reason), None)
