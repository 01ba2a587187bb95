"""Restarts in the same pods, as an operator counts them that was away and reads the pods' last words."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.reporting import REPORT_ADDRESS, reporting
from tools.localcluster import pods
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names
from tpujob_contract.reports import in_place

pytestmark = pytest.mark.control_plane

LIMIT = 2


@pytest.fixture
def replaceable(installed: ControlPlane, operator_directory: Path) -> Iterator[OperatorProcess]:
    """An operator of the test's own, which it may kill and start."""
    with OperatorProcess(installed, operator_directory) as operator:
        yield operator


def last_words(codes: list[int], pod: str, *, of: int) -> str:
    """The termination message of process `of`, after its program has started again once for each code.

    `pod`: of process 0.
    """
    account: in_place.Account = {"lead": pod}
    at = datetime.now(UTC).timestamp()
    for code in codes:
        end: in_place.End = {"cause": in_place.cause_of(code), "process": 1, "code": code, "at": at, "again": at}
        end["line"] = "a bug"
        if of == 1:
            end["words"] = f"ValueError: {code}"
        account = in_place.added(account, end)
    return f"exit code 1, crashed\n{in_place.line(account)}"


def test_restarts_in_the_same_pods_are_counted_from_their_last_words_by_an_operator_that_was_away(
    jobs: Jobs, replaceable: OperatorProcess
) -> None:
    jobs.create("llama", inPlaceRestarts=LIMIT)
    first = jobs.run("llama")
    jobs.wait_phase("llama", "Running")
    replaceable.kill()
    with jobs.at_one_moment():
        for process, pod in enumerate(first):
            words = last_words([1, 75], first[0]["metadata"]["name"], of=process)
            pods.set_failed(jobs.api, pod, exit_code=1, message=words)
        replaceable.start()
        status = jobs.wait("llama", "the attempts in the pods", lambda s: s.get("restarts.inPlace"))
    (last,) = status["restarts.inPlaceAttempts"]
    assert (last["number"], last["cause"], last["message"]) == (2, "Unexplained", "ValueError: 75")

    status = jobs.wait("llama", "the restart", lambda s: s.get("internal.bookedRestarts") == 1)
    assert (status["restarts.total"], status["restarts.charged"], status["restarts.unexplained"]) == (LIMIT + 1, 1, 1)
    second = jobs.wait_pods("llama", other_than=first)
    for pod in second:
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("llama", "Running")
    with jobs.at_one_moment():
        words = last_words([1] * 900, second[0]["metadata"]["name"], of=0)
        pods.set_failed(jobs.api, second[0], exit_code=1, message=words)

    status = jobs.wait("llama", "the second restart", lambda s: s.get("internal.bookedRestarts") == 2)
    assert (status["restarts.total"], status["restarts.inPlace"], status["restarts.unexplained"]) == (
        2 * LIMIT + 2,
        2 * LIMIT,
        1,
    )
    told = [event["message"] for event in jobs.events("llama") if event["reason"] == "RestartedInPlace"]
    (event,) = told
    assert event.startswith("Restart 2 in the same pods, after an end without a known cause: slice 0 host 1 ended")
    of_job = f'cause="Crash",job_name="llama",job_namespace="{jobs.namespace}"'
    crashes = 2 * LIMIT + 2 - 1
    wait_for("the metric", lambda: replaceable.metric("tpujob_operator_job_restarts", of_job) == crashes)


def account_with(account: in_place.Account, lead: Object, *, process: int) -> in_place.Account:
    """The account after a pod was lost, as launcher 0 tells it; `lead`: its pod."""
    at = datetime.now(UTC).timestamp()
    end: in_place.End = {"cause": in_place.DISRUPTION, "process": process, "code": 137, "at": at - 2, "again": at}
    return in_place.added({"lead": lead["metadata"]["name"], **account}, {**end, "line": "gone"})


@pytest.mark.usefixtures("operator")
def test_a_lost_pod_costs_no_other_and_is_counted_once_by_what_became_of_it(jobs: Jobs) -> None:
    """One is deleted, its successor is killed, and then the program fails for good: three causes, three counts."""
    jobs.create("llama", inPlaceRestarts=5)
    first, second = jobs.run("llama", pod_ip=REPORT_ADDRESS, bound=True)
    jobs.wait_phase("llama", "Running")
    report: Object = {"phase": "training", "step": 7}
    account: in_place.Account = {}
    with reporting(report):
        jobs.wait("llama", "a step", lambda s: s.get("step") == 7)
        jobs.api.delete(f"/api/v1/namespaces/{jobs.namespace}/pods/{second['metadata']['name']}")
        jobs.end_deleted(second, exit_code=143, message="told to stop by SIGTERM")
        status = jobs.wait_phase("llama", "Restarting")
        assert "was deleted. Another pod takes its place; the others wait for it" in status["message"]
        third = another_pod(jobs, other_than=[first, second])
        assert third["metadata"]["annotations"][kubernetes_names.INDEX_IGNORED_FAILURES] == "1"
        jobs.bind([third])
        pods.set_running(jobs.api, third)
        jobs.wait_phase("llama", "Running")
        account = account_with(account, first, process=1)
        report |= {"in_place": account}
        status = jobs.wait("llama", "the disruption", lambda s: s.get("restarts.inPlace") == 1)
        assert (status["restarts.total"], status["restarts.disruptions"], status.get("failure")) == (1, 1, None)

        pods.set_failed(jobs.api, third, exit_code=137, message="")
        fourth = another_pod(jobs, other_than=[first, second, third])
        assert fourth["metadata"]["annotations"][kubernetes_names.INDEX_FAILURES] == "1"
        pods.set_running(jobs.api, fourth)
        account = account_with(account, first, process=1)
        report |= {"in_place": account}
        status = jobs.wait("llama", "the crash", lambda s: s.get("restarts.inPlace") == 2)
        assert (status["restarts.total"], status["restarts.disruptions"], status.get("internal.bookedRestarts")) == (
            2,
            1,
            None,
        )
        assert [each["cause"] for each in status["restarts.inPlaceAttempts"]] == ["Disruption", "Crash"]

    jobs.patch("llama", suspend=True)
    jobs.end_deleted(first, exit_code=143)
    jobs.end_deleted(fourth, exit_code=143)
    jobs.wait_phase("llama", "Suspended")
    jobs.patch("llama", suspend=False)
    known = {pod["metadata"]["uid"] for pod in (first, second, third, fourth)}
    wait_for("both pods", lambda: len(others(jobs, known)) == 2)
    fifth, sixth = others(jobs, known)
    for pod in (fifth, sixth):
        pods.set_running(jobs.api, pod)
    jobs.wait_phase("llama", "Running")

    jobset = jobs.jobset("llama")
    assert jobset is not None
    assert not jobset["status"].get("restarts")
    pods.set_failed(jobs.api, sixth, exit_code=1, message="for good")
    status = jobs.wait("llama", "the restart", lambda s: s.get("internal.bookedRestarts") == 1)
    assert (status["restarts.total"], status["restarts.charged"], status["restarts.disruptions"]) == (3, 1, 1)


@pytest.mark.usefixtures("operator")
def test_namespace_of_a_job_that_replaces_pods_can_be_deleted(jobs: Jobs) -> None:
    """The Job controller keeps each deleted pod until its index has another one, which no such namespace gets."""
    jobs.create("llama", inPlaceRestarts=5)
    there = jobs.run("llama", bound=True)
    jobs.wait_phase("llama", "Running")
    jobs.end_namespace(there)


def another_pod(jobs: Jobs, *, other_than: list[Object]) -> Object:
    """The one pod of the job that is none of these."""
    known = {pod["metadata"]["uid"] for pod in other_than}
    return wait_for("another pod", lambda: next(iter(others(jobs, known)), None))


def others(jobs: Jobs, known: set[str]) -> list[Object]:
    there = jobs.api.items(f"/api/v1/namespaces/{jobs.namespace}/pods")
    return [pod for pod in there if pod["metadata"]["uid"] not in known]
