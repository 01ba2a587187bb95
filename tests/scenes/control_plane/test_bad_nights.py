"""Trouble with the real API server and etcd: what is there in the morning. Budgets: tests/e2e/test_night_drills.py."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster import pods
from tools.localcluster.control_plane import ControlPlane

pytestmark = pytest.mark.control_plane

AWAY_SECONDS = 120
RECOVERY_SECONDS = 300
SILENCE_SECONDS = 75
"""Longer than kopf waits for an event, unless it is told not to: its watcher does not survive that wait."""


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with OperatorProcess(installed, tmp_path_factory.mktemp("nights")) as process:
        yield process


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
    assert (status["incarnation"], status.get("restarts.total", 0)) == (1, 0)
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["after", "llama"]


@pytest.fixture(scope="module")
def after_a_killed_etcd(installed: ControlPlane, operator: OperatorProcess) -> Iterator[Jobs]:
    """Jobs of which one ran when etcd was killed; a fixture, since the new etcd outlives the test."""
    assert operator.is_running()
    namespace = "after-a-killed-etcd"
    installed.create_namespace(namespace)
    jobs = Jobs(installed, namespace)
    jobs.create("llama")
    jobs.run("llama")
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
    assert jobs.wait_phase("llama", "Running").get("restarts.total", 0) == 0
