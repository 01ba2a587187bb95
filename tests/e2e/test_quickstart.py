"""The example of the README on a real node, as it is but for where its data and its checkpoints lie, and its length.

Its namespace enforces Kubernetes' strictest pod security profile. One job is told of by the tests in their order.
"""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import operator_pod
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.waiting import wait_for
from tools.localcluster import prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

FILE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
JOB = "quickstart"
STEPS, STEPS_WITHOUT_OPERATOR = 60, 100
"""More of them where an operator that was killed has to come back and look while they last."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SHOWN_WHILE_RUNNING = ("step", "tokensPerSecond", "loss", "lastCheckpointStep", "lastCheckpointTime")
OLDEST_CHECKPOINT = datetime.timedelta(seconds=150)
"""As status shows it, however long the scenes are told to wait."""
LEAST_BYTES = 3_000_000
"""Of the tiny preset's 0.84 million parameters in 32 bits."""


@pytest.fixture(scope="module", params=operator_pod.FATES)
def operator_is_killed(request: pytest.FixtureRequest) -> bool:
    """Whether that happens when the job has just been created, and again while it trains."""
    return request.param


@pytest.fixture(scope="module")
def steps(operator_is_killed: bool) -> int:
    return STEPS_WITHOUT_OPERATOR if operator_is_killed else STEPS


@pytest.fixture(scope="module")
def quickstart(surroundings: Surroundings, text: str, operator_is_killed: bool, steps: int) -> Iterator[Jobs]:
    """The job, just applied."""
    spec = yaml.safe_load(FILE.read_text())["spec"]
    trainer = spec["trainer"] | {
        "data": {"path": text, "tokenizer": "bytes"},
        "batchSize": 8,
        "steps": steps,
        "logEverySteps": 5,
        "checkpoint": {"everySteps": 20},
    }
    with jobs_in_namespace(surroundings, text, "quickstart", RESTRICTED) as jobs:
        jobs.apply(JOB, **spec | {"trainer": trainer, "checkpointDir": jobs.checkpoint_dir(JOB)})
        if operator_is_killed:
            operator_pod.kill(jobs)
        yield jobs


def test_status_tells_progress_while_it_runs(quickstart: Jobs, operator_is_killed: bool, steps: int) -> None:
    status = quickstart.wait(
        JOB,
        f"{', '.join(SHOWN_WHILE_RUNNING)} in its status while it runs",
        lambda status: status.get("phase") == "Running" and all(status.get(key) for key in SHOWN_WHILE_RUNNING),
        seconds=2 * PATIENCE_SECONDS,
    )

    assert status["step"] < steps
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(status["lastCheckpointTime"])
    assert datetime.timedelta(seconds=-1) <= age < OLDEST_CHECKPOINT
    if operator_is_killed:
        operator_pod.kill(quickstart)


def test_prometheus_has_the_metrics_of_both_pods(quickstart: Jobs) -> None:
    url = quickstart.surroundings.prometheus_url
    if url is None:
        pytest.skip("no Prometheus is given: E2E_PROMETHEUS_URL")
    samples = f'max_over_time(tpujob_step{{namespace="{quickstart.namespace}"}}[10m]) > 0'

    wait_for(
        "metrics of both pods in Prometheus",
        lambda: len({sample["metric"]["pod"] for sample in prometheus.query(url, samples)}) == 2,
        timeout_seconds=PATIENCE_SECONDS,  # a pod that gets little of the machine misses scrapes
    )


def test_it_succeeds_and_leaves_its_weights_in_the_bucket(quickstart: Jobs, steps: int) -> None:
    status = quickstart.wait_phase(JOB, "Succeeded", seconds=2 * PATIENCE_SECONDS)

    assert status["step"] == steps
    assert status["incarnation"] == 1
    assert status.get("restarts", 0) == 0
    assert sum(quickstart.objects(JOB, f"steps/{steps}/").values()) > LEAST_BYTES
    assert [attempt["phase"] for attempt in quickstart.attempts(JOB)] == ["finished"]
