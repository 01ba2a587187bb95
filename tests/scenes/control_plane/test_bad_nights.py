"""Series of trouble with the real API server, etcd and JobSet: what is budgeted, and what is there in the morning."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.reporting import REPORT_ADDRESS, reporting
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster import pods
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane

pytestmark = pytest.mark.control_plane

PREEMPTIONS = 20
AWAY_SECONDS = 120
RECOVERY_SECONDS = 300
SILENCE_SECONDS = 75
"""Longer than kopf waits for an event, unless it is told not to: its watcher does not survive that wait."""


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One that does not pause between restarts: a pause deletes the pods that a test has just found.

    It counts from the full second of the restart, so one of a millisecond is over when it is looked at.
    """
    directory = tmp_path_factory.mktemp("nights")
    with OperatorProcess(installed, directory, OPERATOR_RESTART_PAUSE_SECONDS="0.001") as process:
        yield process


def start_attempt(jobs: Jobs, earlier: list[Object], *, pod_ip: str | None = None) -> list[Object]:
    """Pods of the next attempt, all of them running."""
    found = jobs.wait_pods("llama", other_than=earlier)
    for index, pod in enumerate(found):
        pods.set_running(jobs.api, pod, pod_ip=pod_ip if index == 0 else None)
    return found


@pytest.mark.usefixtures("operator")
def test_four_crashes_without_progress_end_the_job(jobs: Jobs) -> None:
    jobs.create("llama")
    found: list[Object] = []
    for crash in range(1, 5):
        found = start_attempt(jobs, found)
        jobs.wait_phase("llama", "Running")
        pods.set_failed(jobs.api, found[1], exit_code=139, message=f"crash {crash}")
        jobs.wait("llama", f"crash {crash}", lambda s, crash=crash: s.get("crashes") == crash)  # type: ignore[misc]
    status = jobs.wait_phase("llama", "Failed")
    assert (status["crashes"], status["failure"]["message"]) == (4, "crash 4")
    assert "4 crashes without a newer checkpoint, and spec.restarts.crashes allows 3." in status["message"]
    assert "slice 0 host 1" in status["message"]


@pytest.mark.faults
@pytest.mark.usefixtures("operator")
def test_preemptions_leave_the_budget_untouched(jobs: Jobs) -> None:
    """Twenty in a row, a checkpoint between each two of them, and not one crash allowed."""
    jobs.create("llama", restarts={"crashes": 0})
    found: list[Object] = []
    report = {"phase": "training", "step": 0, "committed_step": 0}
    with reporting(report):
        for number in range(1, PREEMPTIONS + 1):
            report |= {"step": 100 + number, "committed_step": number}
            found = start_attempt(jobs, found, pod_ip=REPORT_ADDRESS)
            jobs.wait("llama", "a checkpoint", lambda s, n=number: s.get("lastCheckpointStep") == n)  # type: ignore[misc]
            pods.set_failed(jobs.api, found[1], exit_code=143, disruption="PreemptionByScheduler")
            books = jobs.wait("llama", "the books", lambda s, n=number: s.get("bookedRestarts") == n)  # type: ignore[misc]
            assert books["step"] == number
        start_attempt(jobs, found, pod_ip=REPORT_ADDRESS)
        status = jobs.wait_phase("llama", "Running")
    assert (status["restarts"], status["disruptions"], status.get("crashes")) == (PREEMPTIONS, PREEMPTIONS, None)
    assert "nodeFailures" not in status
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"]


def live_through(jobs: Jobs, operator: OperatorProcess) -> None:
    """One job goes on, and another one starts, after whatever has happened; each has one JobSet."""
    if not operator.is_running():
        # It ends when it cannot renew its lease; the kubelet starts it again.
        operator.stop()
        operator.start()
    operator.wait_until_ready()
    jobs.create("after")
    jobs.wait("after", "it to start", lambda s: s.get("phase") == "Starting", seconds=RECOVERY_SECONDS)
    for pod in jobs.wait_pods("after"):
        pods.set_running(jobs.api, pod)
    jobs.wait("after", "it to run", lambda s: s.get("phase") == "Running", seconds=RECOVERY_SECONDS)
    status = jobs.wait("llama", "it to run", lambda s: s.get("phase") == "Running", seconds=RECOVERY_SECONDS)
    assert (status["incarnation"], status.get("restarts", 0)) == (1, 0)
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["after", "llama"]


@pytest.fixture(scope="module")
def after_a_killed_etcd(installed: ControlPlane, operator: OperatorProcess) -> Iterator[Jobs]:
    """Jobs of which one ran when etcd was killed; a fixture, since the new etcd outlives the test."""
    assert operator.is_running()
    namespace = "after-a-killed-etcd"
    installed.create_namespace(namespace)
    jobs = Jobs(installed, namespace)
    jobs.create("llama")
    start_attempt(jobs, [])
    jobs.wait_phase("llama", "Running")
    installed.restart("etcd")
    yield jobs
    installed.api.delete(f"/api/v1/namespaces/{namespace}")


def test_jobs_outlive_a_killed_etcd(after_a_killed_etcd: Jobs, operator: OperatorProcess) -> None:
    live_through(after_a_killed_etcd, operator)


@pytest.mark.faults
def test_jobs_outlive_two_minutes_without_the_api_server(jobs: Jobs, operator: OperatorProcess) -> None:
    """It is frozen: connections stay, and nobody answers."""
    jobs.create("llama")
    found = jobs.wait_pods("llama")
    pods.set_running(jobs.api, found[0])
    jobs.wait_phase("llama", "Starting")
    pid = jobs.plane.pid_of("kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        threading.Event().wait(AWAY_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)
    pods.set_running(jobs.api, found[1])
    live_through(jobs, operator)


@pytest.fixture(scope="module")
def after_a_replaced_api_server(installed: ControlPlane, operator: OperatorProcess) -> Iterator[Jobs]:
    """Jobs that went and came while the operator was frozen; the next API server knows no watch of its (410)."""
    assert operator.process is not None
    namespace = "after-a-replaced-api-server"
    installed.create_namespace(namespace)
    jobs = Jobs(installed, namespace)
    for name in ("deleted", "llama"):
        jobs.create(name)
        jobs.run(name)
        jobs.wait_phase(name, "Running")
    os.kill(operator.process.pid, signal.SIGSTOP)
    try:
        jobs.api.delete(f"{jobs.path}/deleted")
        jobs.create("meanwhile")
        installed.restart("kube-apiserver")
    finally:
        os.kill(operator.process.pid, signal.SIGCONT)
    yield jobs
    installed.api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.faults
def test_jobs_are_watched_long_after_the_api_server_was_replaced(
    after_a_replaced_api_server: Jobs, operator: OperatorProcess
) -> None:
    jobs = after_a_replaced_api_server
    jobs.wait("meanwhile", "it to start", lambda s: s.get("phase") == "Starting", seconds=RECOVERY_SECONDS)
    threading.Event().wait(SILENCE_SECONDS)
    jobs.create("late")
    jobs.wait("late", "it to start", lambda s: s.get("phase") == "Starting")
    assert operator.metric("tpujob_operator_watch_missed_objects") == 0
    assert jobs.wait_phase("llama", "Running").get("restarts", 0) == 0
