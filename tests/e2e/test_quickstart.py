"""The example of the README on a real node, as it is but for where its data and its checkpoints lie."""

from pathlib import Path

import pytest
import yaml

from tests.cluster import prometheus
from tests.cluster.waiting import wait_for
from tests.e2e.jobs import PATIENCE_SECONDS, Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
SHOWN_WHILE_RUNNING = ("step", "tokensPerSecond", "loss", "lastCheckpointStep", "lastCheckpointTime")


def test_quickstart_trains_in_pods(jobs: Jobs) -> None:
    spec = yaml.safe_load(QUICKSTART.read_text())["spec"]
    trainer = spec["trainer"] | {
        "data": {"path": jobs.text, "tokenizer": "bytes"},
        "batchSize": 8,
        "steps": 40,
        "logEverySteps": 5,
        "checkpoint": {"everySteps": 10},
    }

    jobs.apply("quickstart", **spec | {"trainer": trainer, "checkpointDir": jobs.checkpoint_dir("quickstart")})

    jobs.wait(
        "quickstart",
        f"{', '.join(SHOWN_WHILE_RUNNING)} in its status while it runs",
        lambda status: status.get("phase") == "Running" and all(status.get(key) for key in SHOWN_WHILE_RUNNING),
        seconds=2 * PATIENCE_SECONDS,
    )
    samples = f'tpujob_step{{namespace="{jobs.namespace}"}} > 0'
    wait_for("metrics of both pods in Prometheus", lambda: len(pods_in(samples)) == 2, timeout_seconds=30)
    status = jobs.wait_phase("quickstart", "Succeeded", seconds=2 * PATIENCE_SECONDS)
    assert status["step"] == 40
    assert any(name.startswith("steps/40/") for name in jobs.objects("quickstart"))
    assert [attempt["phase"] for attempt in jobs.attempts("quickstart")] == ["finished"]


def pods_in(expression: str) -> set[str]:
    return {sample["metric"]["pod"] for sample in prometheus.query(expression)}
