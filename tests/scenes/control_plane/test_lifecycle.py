"""A job's life with the real API server and JobSet controller; the operator is a process, the kubelet is played."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.reporting import REPORT_ADDRESS, reporting
from tests.scenes.control_plane.requests_made import jobsets_created, requests_made
from tools.localcluster import pods
from tools.localcluster.waiting import wait_for
from tpujob_operator.base.settings import Settings
from tpujob_resource.models.times import format_time

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]

# More than the schema of the resource can know.
TRAINER = {"model": {"preset": "tiny"}, "data": {"path": "/data"}, "steps": 9}
UNDIVIDED: dict[str, Any] = {"image": None, "command": None, "trainer": {**TRAINER, "batchSize": 7}}


def test_job_runs_to_its_end(jobs: Jobs) -> None:
    jobs.create("llama")
    found = jobs.wait_pods("llama")
    starting = jobs.wait_phase("llama", "Starting")
    assert starting["ready"] == "0/2"
    pods.set_running(jobs.api, found[1])
    jobs.wait("llama", "one host", lambda status: status.get("ready") == "1/2")
    report = {"phase": "training", "step": 7, "steps": 9, "loss": 2.25, "tokens_per_second": 1000.0}
    saved_at = datetime.now(UTC).replace(microsecond=0) - timedelta(days=20, hours=12)
    report |= {"committed_step": 5, "committed_time": saved_at.timestamp()}
    report |= {"checkpoint_failing_since": saved_at.timestamp(), "checkpoint_message": "503 from the bucket"}
    with reporting(report):
        pods.set_running(jobs.api, found[0], pod_ip=REPORT_ADDRESS)
        running = jobs.wait("llama", "progress", lambda status: status.get("step") == 7)
        assert running["phase"] == "Running"
        assert (running["steps"], running["progress.loss"], running["progress.tokensPerSecond"]) == (9, 2.25, 1000)
        assert (running["lastCheckpointStep"], running["lastCheckpointTime"]) == (5, format_time(saved_at))
        (health,) = (c for c in running["conditions"] if c["type"] == "CheckpointHealthy")
        assert (health["status"], health["reason"]) == ("False", "SavesFail")
        assert f"No save has succeeded since {format_time(saved_at)}: 503 from the bucket." in health["message"]
        report |= {"step": 8, "loss": 2.0}
        jobs.wait("llama", "more progress", lambda status: status.get("step") == 8 and status.get("progress.loss") == 2)
        table = jobs.plane.kubectl("get", "ttj", "llama", "-n", jobs.namespace)
    # Phase, hosts, step, and the age of the last checkpoint.
    assert {"Running", "2/2", "8", "20d"} <= set(table.splitlines()[1].split())

    parting = 'report: {"phase": "finished", "step": 9, "steps": 9, "committed_step": 9, "committed_time": 1893499260}'
    pods.set_succeeded(jobs.api, found[0], message=parting)
    pods.set_succeeded(jobs.api, found[1])

    ended = jobs.wait_phase("llama", "Succeeded")
    assert (ended["step"], ended["steps"], ended["ready"]) == (9, 9, "2/2")
    assert (ended["lastCheckpointStep"], ended["lastCheckpointTime"]) == (9, "2030-01-01T12:01:00Z")
    assert ended["completionTime"] >= ended["startTime"]
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"]

    def reasons() -> list[str]:
        return sorted(event["reason"] for event in jobs.events("llama"))

    wait_for("the last event", lambda: "Finished" in reasons())
    assert reasons() == ["AllHostsReady", "Finished", "HostsStarting"]
    assert jobs.plane.kubectl("wait", "--for=condition=Succeeded", "ttj/llama", "-n", jobs.namespace, "--timeout=60s")


def test_one_crash_more_than_allowed_ends_the_job(jobs: Jobs) -> None:
    jobs.create("llama", restarts={"crashes": 1})
    first = jobs.run("llama")
    pods.set_failed(jobs.api, first[0], exit_code=1, message="the first crash")
    second = jobs.wait_pods("llama", other_than=first)
    for pod in second:
        pods.set_running(jobs.api, pod)
    pods.set_failed(jobs.api, second[0], exit_code=1, message="the second crash")

    ended = jobs.wait_phase("llama", "Failed")
    assert "2 crashes without a newer checkpoint, and spec.restarts.crashes allows 1" in ended["message"]
    assert ended["failure"]["message"] == "the second crash"
    wait_for("the JobSet to be suspended", lambda: (jobs.jobset("llama") or {"spec": {}})["spec"].get("suspend"))


def test_failure_is_recorded_while_the_pod_vanishes(jobs: Jobs) -> None:
    """Deleted in the same moment as it failed: only the watch's events can have told."""
    jobs.create("llama")
    found = jobs.run("llama")
    jobs.wait_phase("llama", "Running")

    pods.set_failed(jobs.api, found[0], exit_code=139, message="Fatal Python error: Segmentation fault")
    jobs.delete_pod(found[0])

    status = jobs.wait("llama", "the failure", lambda status: status.get("failure"))
    assert status["failure"]["exitCode"] == 139
    assert "Segmentation fault" in status["failure"]["message"]
    # JobSet restarts it in place; the failure of the earlier attempt stays to be read.
    again = jobs.wait_pods("llama", other_than=found)
    for pod in again:
        pods.set_running(jobs.api, pod)
    status = jobs.wait("llama", "the next attempt", lambda s: s.get("restarts.total") == 1 and s["phase"] == "Running")
    assert status["failure"]["attempt"] == 0
    jobs.finish("llama")
    assert "failure" not in jobs.wait_phase("llama", "Succeeded")


def test_impossible_spec_is_said_at_once(jobs: Jobs, record_property: Callable[[str, object], None]) -> None:
    answer = jobs.create("llama", **UNDIVIDED)
    status = jobs.wait_phase("llama", "Invalid")

    job = jobs.get("llama")
    written = next(e for e in job["metadata"]["managedFields"] if e.get("subresource") == "status")
    created = datetime.fromisoformat(answer["metadata"]["creationTimestamp"])
    # By the API server's own stamps, cut to whole seconds. An idle machine shows 0; a busy one gets more time, and much
    # less than until the next look at all jobs.
    seconds = (datetime.fromisoformat(written["time"]) - created).total_seconds()
    record_property("seconds_until_invalid", seconds)
    assert seconds <= 60 < Settings().resync_seconds
    (valid,) = (c for c in status["conditions"] if c["type"] == "Valid")
    assert (valid["status"], valid["reason"], valid["observedGeneration"]) == ("False", "Rejected", 1)
    assert status["observedGeneration"] == 1
    assert "spec.trainer.batchSize: 7 rows do not divide over" in valid["message"]
    wait_for("the event", lambda: len(jobs.events("llama")) == 1)
    assert jobs.jobset("llama") is None

    jobs.patch("llama", trainer={"batchSize": None})

    jobs.wait_phase("llama", "Starting")
    wait_for("the next event", lambda: len(jobs.events("llama")) == 2)
    assert sorted(event["reason"] for event in jobs.events("llama")) == ["HostsStarting", "Rejected"]


def test_nothing_is_read_or_written_at_rest(jobs: Jobs, operator: OperatorProcess) -> None:
    jobs.create("invalid", **UNDIVIDED)
    jobs.create("suspended", suspend=True)
    jobs.create("running")
    jobs.create("over")
    jobs.run("running")
    jobs.run("over")
    jobs.wait_phase("over", "Running")
    jobs.finish("over")
    jobs.wait_phase("over", "Succeeded")
    jobs.wait_phase("invalid", "Invalid")
    jobs.wait_phase("suspended", "Suspended")
    jobs.wait_phase("running", "Running")
    log = jobs.plane.audit_log

    def looks() -> float:
        return operator.metric("tpujob_operator_reconciles_total")

    def more_looks(count: int) -> None:
        before = looks()
        wait_for("more looks", lambda: looks() >= before + count)

    def is_at_rest() -> bool:
        before = len(requests_made(log, jobs.namespace))
        more_looks(8)
        return len(requests_made(log, jobs.namespace)) == before

    # The first looks may still write what the last events brought, and what JobSet does of it; then, nothing.
    wait_for("rest", lambda: all(is_at_rest() for _ in range(3)))
    settled = len(requests_made(log, jobs.namespace))
    # Something that concerns all of them, and changes nothing.
    for name in ("invalid", "suspended", "running", "over"):
        jobs.api.patch(f"{jobs.path}/{name}", {"metadata": {"annotations": {"note": "touched"}}})
    more_looks(8)
    assert requests_made(log, jobs.namespace)[settled:] == []


def test_suspended_is_said_when_the_pods_are_gone(jobs: Jobs) -> None:
    jobs.create("llama", suspend=True)
    jobs.wait_phase("llama", "Suspended")
    created = jobs.jobset("llama")
    assert created is not None
    assert created["spec"]["suspend"] is True
    jobs.patch("llama", suspend=False)
    found = jobs.run("llama", bound=True)
    jobs.wait_phase("llama", "Running")

    jobs.patch("llama", suspend=True)

    jobs.wait("llama", "the last grace periods", lambda s: s["phase"] == "Stopping" and "2 pods" in s["message"])
    wait_for("the JobSet to be suspended", lambda: (jobs.jobset("llama") or {})["spec"]["suspend"] is True)
    parting = 'asked to stop\nreport: {"step": 12, "committed_step": 12, "committed_time": 1893499200}'
    jobs.end_deleted(found[0], exit_code=75, message=parting)
    jobs.wait("llama", "one pod", lambda s: "1 pods" in s["message"])
    assert jobs.get("llama")["status"]["phase"] == "Stopping"
    jobs.end_deleted(found[1], exit_code=75)
    status = jobs.wait_phase("llama", "Suspended")
    assert (status["step"], status["lastCheckpointStep"]) == (12, 12)
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"]


def test_pods_that_cannot_be_created_are_explained(jobs: Jobs) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    quotas = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas"
    jobs.api.create(quotas, quota)
    wait_for("the quota to count", lambda: jobs.api.get(f"{quotas}/none").get("status", {}).get("hard"))

    jobs.create("llama")

    status = jobs.wait("llama", "Blocked", lambda s: any(c["type"] == "Blocked" for c in s.get("conditions", [])))
    (blocked,) = (c for c in status["conditions"] if c["type"] == "Blocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "CreationRefused")
    assert "exceeded quota" in blocked["message"]


def test_ended_job_survives_its_jobset(jobs: Jobs) -> None:
    jobs.create("llama", ttlSecondsAfterFinished=0)
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")
    jobs.finish("llama")
    jobs.wait_phase("llama", "Succeeded")
    wait_for("the JobSet to be deleted at the end of its time", lambda: jobs.jobset("llama") is None)
    jobs.patch("llama", ttlSecondsAfterFinished=5)
    jobs.wait("llama", "the new generation", lambda status: status.get("observedGeneration") == 2)

    assert jobs.get("llama")["status"]["phase"] == "Succeeded"
    assert jobsets_created(jobs.plane.audit_log, jobs.namespace) == ["llama"]
