"""The example of the README on a real node, as it is but for where its data and its checkpoints lie, and its length.

It has no last step until all is seen that must be seen while it runs. Then it is stopped, is given one, and goes on.
Its namespace enforces Kubernetes' strictest pod security profile. One job is told of by the tests in their order.
"""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import operator_pod
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.waiting import wait_for
from tools.localcluster import prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1800)]

FILE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
JOB = "quickstart"
LAST_STEPS = 20
"""That it makes when it goes on."""
SECONDS_BETWEEN_SAVES = 3
EXIT_CODE_STOPPED = 75
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SHOWN_WHILE_RUNNING = ("step", "progress.tokensPerSecond", "progress.loss", "lastCheckpointStep", "lastCheckpointTime")
OLDEST_CHECKPOINT = datetime.timedelta(seconds=150)
"""As status shows it, however long the tests are told to wait."""
LEAST_BYTES = 3_000_000
"""Of the tiny preset's 0.84 million parameters in 32 bits."""


@pytest.fixture(scope="module", params=operator_pod.FATES)
def operator_is_killed(request: pytest.FixtureRequest) -> bool:
    """Whether that happens when the job has just been created, and again while it trains."""
    return request.param


@pytest.fixture(scope="module")
def quickstart(surroundings: Surroundings, text: str, operator_is_killed: bool) -> Iterator[Jobs]:
    """The job, just applied."""
    spec = yaml.safe_load(FILE.read_text())["spec"]
    trainer = spec["trainer"] | {
        "data": {"path": text, "tokenizer": "bytes"},
        "batchSize": 8,
        "steps": FOR_EVER,
        "logEverySteps": 5,
        "checkpoint": {"everySeconds": SECONDS_BETWEEN_SAVES},
    }
    with jobs_in_namespace(surroundings, text, "quickstart", RESTRICTED) as jobs:
        jobs.apply(JOB, **spec | {"trainer": trainer, "checkpointDir": jobs.checkpoint_dir(JOB)})
        if operator_is_killed:
            operator_pod.kill(jobs)
        yield jobs


def test_status_tells_progress_while_it_runs(quickstart: Jobs, operator_is_killed: bool) -> None:
    status = quickstart.wait(
        JOB,
        f"{', '.join(SHOWN_WHILE_RUNNING)} in its status while it runs",
        lambda status: status.get("phase") == "Running" and all(status.get(key) for key in SHOWN_WHILE_RUNNING),
        seconds=2 * PATIENCE_SECONDS,
    )

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


def test_it_was_not_restarted_and_saves_when_it_is_stopped(quickstart: Jobs) -> None:
    quickstart.patch(JOB, suspend=True)

    status = quickstart.wait_phase(JOB, "Suspended", seconds=2 * PATIENCE_SECONDS)
    assert status["incarnation"] == 1
    assert status.get("restarts.total", 0) == 0
    assert [attempt["exit_code"] for attempt in quickstart.attempts(JOB)] == [EXIT_CODE_STOPPED]


def test_it_succeeds_and_leaves_its_weights_in_the_bucket(quickstart: Jobs) -> None:
    steps = last_saved(quickstart) + LAST_STEPS
    quickstart.patch(JOB, trainer={"steps": steps}, suspend=False)

    status = quickstart.wait_phase(JOB, "Succeeded", seconds=4 * PATIENCE_SECONDS)
    assert status["step"] == steps
    assert status.get("restarts.total", 0) == 0
    assert sum(quickstart.objects(JOB, f"steps/{steps}/").values()) > LEAST_BYTES
    assert quickstart.attempts(JOB)[-1]["phase"] == "finished"


def last_saved(jobs: Jobs) -> int:
    """The newest step among the checkpoints of the job."""
    return max(int(name.split("/")[1]) for name in jobs.objects(JOB, "steps/"))
