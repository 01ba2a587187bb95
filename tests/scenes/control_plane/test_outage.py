"""What the operator does while the API server, or its watches, misbehave."""

import json
from collections.abc import Iterator

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.proxy import Proxy
from tests.scenes.control_plane.requests_made import jobsets_created
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
    """Each watch that ends in an ERROR is opened again, kopf as a whole, and nothing is lost."""
    error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"}
    jobs.create("before")
    jobs.wait_phase("before", "Starting")

    # Ours of JobSets and of pods, kopf's of jobs and of definitions.
    wait_for("all watches to be open", lambda: proxy.open_watches == 4)
    restarts = operator.metric("tpujob_operator_watch_restarts_total")
    proxy.end_watches(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")

    jobs.create("after")
    jobs.wait_phase("after", "Starting")
    jobs.run("before")
    jobs.wait_phase("before", "Running")
    wait_for(
        "the restarts to be counted", lambda: operator.metric("tpujob_operator_watch_restarts_total") == restarts + 3
    )
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["after", "before"]
    assert operator.get("/healthz")[0] == 200
    assert "Traceback" not in operator.log()


def test_deletions_that_no_watch_told_are_noticed(jobs: Jobs, operator: OperatorProcess, proxy: Proxy) -> None:
    """Every watch ends with 410; until the next list a JobSet goes, and a job is made anew under its name."""
    for name in ("bereft", "again"):
        jobs.create(name)
        jobs.run(name)
        jobs.wait_phase(name, "Running")
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    wait_for("all watches to be open", lambda: proxy.open_watches == 4)
    try:
        proxy.refuse = 503
        proxy.end_watches(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        jobs.api.delete(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{jobs.namespace}/jobsets/bereft")
        old = jobs.jobset("again")
        jobs.api.delete(f"{jobs.path}/again")
        new = jobs.create("again")
        wait_for("the old JobSet to go", lambda: jobs.jobset("again") is None)
    finally:
        proxy.refuse = None
    assert old is not None
    status = jobs.wait_phase("bereft", "Failed")
    assert [c["reason"] for c in status["conditions"] if c["type"] == "Failed"] == ["JobSetDeleted"]
    status = jobs.wait_phase("again", "Starting")
    made = jobs.jobset("again")
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]
    assert status["internal.jobSetUid"] == made["metadata"]["uid"] != old["metadata"]["uid"]
    assert operator.is_running()
