"""What the operator does while the API server, or its watches, misbehave."""

import json
from collections.abc import Iterator

import pytest

from tests.control_plane.jobs import Jobs
from tests.control_plane.operator_process import OperatorProcess
from tests.control_plane.proxy import Proxy
from tests.control_plane.requests_made import jobsets_created
from tools.localcluster import pods
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane


@pytest.fixture(scope="module")
def proxy(installed: ControlPlane) -> Iterator[Proxy]:
    with Proxy(installed).serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def operator(
    installed: ControlPlane, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One whose every request passes the proxy."""
    with OperatorProcess(installed, tmp_path_factory.mktemp("outage"), url=proxy.url) as process:
        yield process


@pytest.mark.parametrize("status", [503, 403, 401])
def test_outage_does_not_end_the_process(jobs: Jobs, operator: OperatorProcess, proxy: Proxy, status: int) -> None:
    pid = operator.process.pid if operator.process else 0
    jobs.create("before")
    found = jobs.wait_pods("before")
    try:
        proxy.refuse = status
        proxy.end_watches()
        jobs.create("during")
        for pod in found:
            pods.set_running(jobs.api, pod)
        refused = operator.metric("tpujob_operator_api_requests_total")
        # The started job is looked at every few seconds; each of these looks fails now.
        wait_for("requests in the outage", lambda: operator.metric("tpujob_operator_api_requests_total") >= refused + 2)
    finally:
        proxy.refuse = None
    jobs.wait_phase("during", "Starting")
    jobs.wait_phase("before", "Running")
    assert operator.is_running()
    assert operator.process is not None
    assert operator.process.pid == pid
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["before", "during"]


def test_error_in_a_watch_does_not_end_the_process(jobs: Jobs, operator: OperatorProcess, proxy: Proxy) -> None:
    """An ERROR other than 410 is final for kopf: it ends. It is started again, and nothing is lost."""
    restarts = operator.metric("tpujob_operator_watch_restarts_total")
    error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"}
    jobs.create("before")
    jobs.wait_phase("before", "Starting")

    assert proxy.end_watches(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n") >= 3

    jobs.create("after")
    jobs.wait_phase("after", "Starting")
    jobs.run("before")
    jobs.wait_phase("before", "Running")
    wait_for(
        "the restart to be counted", lambda: operator.metric("tpujob_operator_watch_restarts_total") == restarts + 1
    )
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["after", "before"]
    assert operator.get("/healthz")[0] == 200
