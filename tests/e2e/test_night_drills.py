"""Trouble of a night with a real kubelet: crash loops, a full memory, a drained node, a frozen leader, no API server.

One after another, on an operator that reads reports every second and hardly pauses between restarts. `make e2e-nights`
plays the long ones. What becomes of the control plane is in test_control_plane_drills, and a machine that dies in
test_node_gone.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e import operator_pod
from tests.e2e.host_processes import frozen, operator_process, process_of
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.test_training import evict
from tests.e2e.test_upgrade import JOB, holder, state
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object
from tpujob_contract import ports

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.timeout(1800)]

WAITS = "import signal; signal.pause()"
CRASHES = """
import os, signal, sys
if os.environ["TPUJOB_HOST"] == "1":
    print("a crash")
    sys.exit(1)
signal.pause()
"""
# Each attempt commits a checkpoint, so its process 0 says: at a second, as the step. Host 1 crashes when it is told to.
ADVANCES = f"""
import http.server, json, os, sys, time
step = int(time.time())
class Report(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"phase": "training", "step": step, "committed_step": step}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
if os.environ["TPUJOB_HOST"] == "0":
    http.server.HTTPServer(("", {ports.REPORT}), Report).serve_forever()
while not os.path.exists("/tmp/crash"):
    time.sleep(0.1)
sys.exit(1)
"""
FILLS_ITS_MEMORY = """
print("about to read all of it")
all_of_it = b"x" * (512 << 20)
"""
SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
CRASHES_WITH_PROGRESS = 5
"""More than spec.restarts.crashes allows in a row."""
EVICTIONS = 20
AWAY_SECONDS = [20, pytest.param(120, marks=pytest.mark.faults)]


@pytest.fixture(scope="module", autouse=True)
def quick_operator(surroundings: Surroundings, text: str) -> Iterator[None]:
    if not surroundings.is_own:
        pytest.skip("freezes and cordons what `make cluster` has, and nobody else's")
    with (
        jobs_in_namespace(surroundings, text, "night-drills", {}) as jobs,
        operator_pod.with_settings(jobs, **operator_pod.QUICKLY),
    ):
        yield


@pytest.fixture
def waiting(jobs: Jobs) -> Jobs:
    """A job of two hosts that runs."""
    jobs.run(JOB, WAITS, gracePeriodSeconds=5)
    jobs.wait_phase(JOB, "Running")
    return jobs


def test_four_crashes_without_progress_end_the_job(jobs: Jobs) -> None:
    jobs.run(JOB, CRASHES, gracePeriodSeconds=5)

    status = jobs.wait_phase(JOB, "Failed")

    assert (status["restarts.charged"], status["failure"]["exitCode"]) == (4, 1), status["failure"]
    assert status["failure"]["message"].endswith("a crash")
    assert "4 crashes without a newer checkpoint, and spec.restarts.crashes allows 3." in status["message"]
    assert status["failure"]["host"] == "slice 0 host 1"
    # There is no other node: after two crashes this one was avoided, for a minute.
    assert (status["failure"]["node"], status["incarnation"]) == (status["nodeFailures"][0]["node"], 3)


@pytest.mark.faults
def test_crashes_with_progress_do_not_end_the_job(jobs: Jobs) -> None:
    status = end_attempts(jobs, CRASHES_WITH_PROGRESS, crash)

    assert (status["restarts.total"], status["restarts.charged"]) == (CRASHES_WITH_PROGRESS, 1)


@pytest.mark.faults
def test_evictions_leave_the_budget_untouched(jobs: Jobs) -> None:
    """Twenty in a row, and not one crash allowed."""
    status = end_attempts(jobs, EVICTIONS, evict, restarts={"crashes": 0})

    assert (status["restarts.total"], status["restarts.disruptions"], status.get("restarts.charged", 0)) == (
        EVICTIONS,
        EVICTIONS,
        0,
    )
    assert "nodeFailures" not in status


def test_host_killed_for_its_memory_says_so(jobs: Jobs) -> None:
    jobs.run(JOB, FILLS_ITS_MEMORY, accelerator="cpu:1x1", resources=SMALL, restarts={"crashes": 0})

    status = jobs.wait_phase(JOB, "Failed")

    assert status["failure"]["exitCode"] == 128 + signal.SIGKILL
    assert "OOMKilled" in status["failure"]["message"]
    assert "raise spec.resources" in status["message"]


def test_drain_of_its_node_costs_a_job_nothing(waiting: Jobs) -> None:
    before = waiting.pods(JOB)
    with drained(waiting, before[0]["spec"]["nodeName"]):
        status = waiting.wait(JOB, "the lack of a node", lambda s: s.get("phase") == "WaitingForCapacity")
        assert "Unschedulable" in str(status["conditions"])

    wait_for("its new pods", lambda: are_others(waiting.pods(JOB), before), timeout_seconds=PATIENCE_SECONDS)
    status = waiting.wait(
        JOB, "it to run again", lambda s: s.get("phase") == "Running" and s.get("restarts.disruptions")
    )
    assert (status["restarts.total"], status["restarts.disruptions"], status.get("restarts.charged", 0)) == (1, 1, 0)


def test_frozen_leader_is_replaced_and_harms_nothing_later(waiting: Jobs) -> None:
    operator_pod.scale(waiting, 2)
    before, leader = state(waiting), holder(waiting)
    with frozen(operator_process(waiting, leader)):
        wait_for("another leader", lambda: holder(waiting) not in ("", leader), timeout_seconds=PATIENCE_SECONDS)
        waiting.run("meanwhile", "print('done')")
        waiting.wait_phase("meanwhile", "Succeeded")
    operator_pod.scale(waiting, 1)
    waiting.run("afterwards", "print('done')")
    waiting.wait_phase("afterwards", "Succeeded")
    assert state(waiting) == before


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
def test_jobs_outlive_the_absence_of_the_api_server(waiting: Jobs, seconds: int) -> None:
    before = state(waiting)
    with frozen(process_of("kube-apiserver")):
        threading.Event().wait(seconds)

    waiting.run("afterwards", "print('done')")
    waiting.wait_phase("afterwards", "Succeeded")
    waiting.wait_phase(JOB, "Running")
    assert state(waiting) == before


def end_attempts(jobs: Jobs, count: int, end: Callable[[Jobs, str], None], **spec: Object) -> Object:
    """The status after so many attempts of a job were ended, each after one more checkpoint."""
    jobs.run(JOB, ADVANCES, gracePeriodSeconds=5, **spec)
    status = advanced(jobs, 0)
    for _ in range(count):
        end(jobs, second_host(jobs))
        status = advanced(jobs, status["lastCheckpointStep"])
    return status


def advanced(jobs: Jobs, step: int) -> Object:
    """The status once all hosts run and a checkpoint beyond this step is committed."""
    return jobs.wait(
        JOB,
        f"a checkpoint beyond {step}",
        lambda s: s.get("phase") == "Running" and s["hostsReady"] == 2 and (s.get("lastCheckpointStep") or 0) > step,
    )


def second_host(jobs: Jobs) -> str:
    names = [pod["metadata"]["name"] for pod in jobs.pods(JOB) if "deletionTimestamp" not in pod["metadata"]]
    (name,) = (name for name in names if name.startswith(f"{JOB}-w-0-1-"))
    return str(name)


def crash(jobs: Jobs, pod: str) -> None:
    jobs.run_inside(pod, "open('/tmp/crash', 'w').close()")


def are_others(pods: list[Object], before: list[Object]) -> bool:
    old = {pod["metadata"]["uid"] for pod in before}
    return len(pods) == len(before) and not old & {pod["metadata"]["uid"] for pod in pods}


@contextmanager
def drained(jobs: Jobs, node: str) -> Iterator[None]:
    """The node takes no pods, and those of the job were evicted from it."""
    selector = f"--pod-selector=jobset.sigs.k8s.io/jobset-name={JOB}"
    try:
        jobs.cluster.kubectl(
            "drain",
            node,
            selector,
            "--force",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            f"--timeout={PATIENCE_SECONDS:.0f}s",
        )
        yield
    finally:
        jobs.cluster.kubectl("uncordon", node)
