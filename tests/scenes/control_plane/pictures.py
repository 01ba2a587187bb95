"""Draws the dashboards for the documentation: `python -m tests.scenes.control_plane.pictures [MINUTES]`.

A small model learns the source of Python's standard library in two processes; in the middle one of them is killed.
"""

import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.harness.jobs import Jobs
from tests.harness.operator_process import NAMESPACE as OPERATOR_NAMESPACE
from tests.harness.operator_process import OperatorProcess, grant_rights
from tests.scenes.control_plane.monitored import RATE_INTERVAL, Scenario, played
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.prometheus import query
from tools.localcluster.waiting import wait_for
from tools.monitoring import dashboards
from tools.monitoring.pictures import page
from tools.monitoring.pictures.series import Window

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "images" / "dashboards"
DEFINITIONS = ROOT / "charts" / "tpujob-operator" / "crd"
NAMESPACE = "research"
MINUTES = 6.0
LEADS = {"OPERATOR_LEADER_ELECTION": "true", "OPERATOR_NAMESPACE": OPERATOR_NAMESPACE}
"""As the chart has it."""
TRAINER: dict[str, Any] = {
    "model": {"layers": 2, "embedDim": 64, "heads": 2},
    "data": {"tokenizer": "bytes"},
    "sequenceLength": 64,
    "batchSize": 16,
    "steps": 20_000,
    "logEverySteps": 10,
    "checkpoint": {"everySeconds": 20, "keep": 2},
    "evaluation": {"everySteps": 200, "batches": 4},
    "trackers": {"tensorboard": {}},
}


def main(minutes: float) -> None:
    """Plays the job for so long, and writes a picture of each dashboard."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        definitions = [jobset_custom_resources(), DEFINITIONS]
        with ControlPlane(directory / "plane", custom_resources=definitions) as plane, JobSetController(plane):
            grant_rights(plane)
            plane.create_namespace(NAMESPACE)
            data = _write_text(directory / "data")
            with (
                OperatorProcess(plane, directory / "operator", **LEADS) as operator,
                played(Jobs(plane, NAMESPACE), operator, directory, data, TRAINER) as scenario,
            ):
                began = time.time()
                _wait_for_samples(scenario, 30 * minutes)
                scenario.crash_and_go_on()
                _wait_for_samples(scenario, 30 * minutes)
                _draw(scenario, began)


def _wait_for_samples(scenario: Scenario, seconds: float) -> None:
    """Returns when Prometheus has scraped the job for so much longer."""
    until = time.time() + seconds
    wait_for(
        f"samples of another {seconds:g} s",
        lambda: query(scenario.url, f"max(timestamp(tpujob_step)) >= {until}"),
        timeout_seconds=2 * seconds + 60,
        poll_seconds=1,
    )


def _draw(scenario: Scenario, began: float) -> None:
    now = time.time()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in dashboards.ALL.keys() - {"chips"}:  # No job of this scenario trains on chips.
        dashboard = dashboards.ALL[name]
        variables = scenario.variables(dashboard) | {"$__rate_interval": RATE_INTERVAL}
        window = Window(scenario.url, began, now, variables)
        (FOLDER / f"{name}.svg").write_text(page.render(dashboard, window))


def _write_text(folder: Path) -> str:
    folder.mkdir(parents=True)
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sources]
    pq.write_table(pa.table({"text": texts}), folder / "text.parquet", row_group_size=16)
    return f"{folder}/*.parquet"


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else MINUTES)
