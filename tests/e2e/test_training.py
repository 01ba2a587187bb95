"""What happens to a training job while it runs, told once with the operator there and once with it killed each time.

One job lives through all of it; a test that finds none running, because the one before failed, makes it anew.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.e2e import operator_pod
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

JOB = "job"
GRACE_SECONDS = 60
SECONDS_BETWEEN_SAVES = 3
EXIT_CODE_STOPPED = 75
BOOKS = ("restarts.total", "restarts.charged", "restarts.disruptions", "restarts.unexplained")
CHILDREN = ("jobsets", "jobs", "pods", "services", "networkpolicies")

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
    jobs.run_inside(pod, KILL_TRAINER)


@pytest.fixture(scope="module", params=operator_pod.FATES)
def operator_is_killed(request: pytest.FixtureRequest) -> bool:
    """Whether that happens in the middle of every test."""
    return request.param


@pytest.fixture(scope="module")
def scenario(surroundings: Surroundings, text: str, operator_is_killed: bool) -> Iterator[Jobs]:
    """The namespace of the one job."""
    name = f"training-{'without' if operator_is_killed else 'with'}-operator"
    with jobs_in_namespace(surroundings, text, name, {}) as jobs:
        yield jobs


@pytest.fixture
def meanwhile(scenario: Jobs, operator_is_killed: bool) -> Callable[[], None]:
    """Called in the middle of a test: nothing happens, or the operator's pod is killed."""
    return (lambda: operator_pod.kill(scenario)) if operator_is_killed else (lambda: None)


@pytest.fixture
def training(scenario: Jobs) -> Jobs:
    """The job trains, and has committed a checkpoint since it last started."""
    if scenario.status(JOB).get("phase") in (None, "Failed"):
        scenario.delete(JOB)
        checkpoint = {"everySeconds": SECONDS_BETWEEN_SAVES}
        scenario.train(JOB, steps=FOR_EVER, checkpoint=checkpoint, gracePeriodSeconds=GRACE_SECONDS)
    scenario.patch(JOB, suspend=False)
    began = scenario.wait_until_it_trains(JOB)
    scenario.wait(JOB, "a checkpoint since its start", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    return scenario


@pytest.mark.parametrize("end", [delete, pytest.param(evict, marks=pytest.mark.core), kill])
def test_job_that_lost_a_pod_goes_on_from_the_last_committed_step(
    training: Jobs, meanwhile: Callable[[], None], end: Callable[[Jobs, str], None]
) -> None:
    status, before = training.status(JOB), training.pods(JOB)

    end(training, before[1]["metadata"]["name"])
    meanwhile()

    wait_for(
        "new pods of both hosts",
        lambda: are_all_new(training.pods(JOB), before),
        timeout_seconds=PATIENCE_SECONDS,
        explain=lambda: training.explain(JOB),
    )
    restored = training.wait_until_it_trains(JOB)
    assert restored >= status["lastCheckpointStep"]
    later = training.wait(
        JOB,
        "a later step of another attempt",
        lambda now: (
            now.get("phase") == "Running"
            and now.get("restarts.total", 0) > status.get("restarts.total", 0)
            and (now.get("step") or 0) > restored
        ),
    )
    assert later["restarts.total"] == status.get("restarts.total", 0) + 1
    assert later["incarnation"] == status["incarnation"]


@pytest.mark.core
def test_suspended_job_saves_and_goes_on(training: Jobs, meanwhile: Callable[[], None]) -> None:
    status = training.status(JOB)
    asked_before = len(training.attempts(JOB))

    training.patch(JOB, suspend=True)
    meanwhile()

    training.wait_phase(JOB, "Suspended", seconds=GRACE_SECONDS + PATIENCE_SECONDS)
    assert [pod for pod in training.pods(JOB) if pod["status"]["phase"] not in ("Succeeded", "Failed")] == []
    assert training.attempts(JOB)[asked_before - 1]["exit_code"] == EXIT_CODE_STOPPED
    saved = max(int(name.split("/")[1]) for name in training.objects(JOB, "steps/"))
    assert saved >= status["step"]

    training.patch(JOB, suspend=False)
    meanwhile()

    restored = training.wait_until_it_trains(JOB)
    assert restored == saved
    later = training.wait(JOB, "a step after the saved one", lambda now: (now.get("step") or 0) > saved)
    assert {key: later.get(key, 0) for key in BOOKS} == {key: status.get(key, 0) for key in BOOKS}


def test_deleted_job_leaves_its_checkpoints_and_nothing_else(training: Jobs, meanwhile: Callable[[], None]) -> None:
    committed = training.status(JOB)["lastCheckpointStep"]

    training.cluster.kubectl("delete", "ttj", JOB, f"--namespace={training.namespace}", "--wait=false")
    meanwhile()

    wait_for(
        "it and its children to be gone",
        lambda: not children(training),
        timeout_seconds=GRACE_SECONDS + PATIENCE_SECONDS,
        explain=lambda: str(children(training)),
    )
    steps = {int(name.split("/")[1]) for name in training.objects(JOB, "steps/")}
    assert max(steps) >= committed


def are_all_new(pods: list[Object], before: list[Object]) -> bool:
    old = {pod["metadata"]["uid"] for pod in before}
    return len(pods) == len(before) and not old & {pod["metadata"]["uid"] for pod in pods}


def children(jobs: Jobs) -> list[str]:
    found = [(kind, item) for kind in ("ttj", *CHILDREN) for item in jobs.cluster.items(kind, jobs.namespace)]
    return [f"{kind}/{item['metadata']['name']}" for kind, item in found]
