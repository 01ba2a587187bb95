"""What the dashboards are about, for real: a job that trains and crashes, an extraction, an operator, a Prometheus."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.harness.jobs import Jobs
from tests.harness.local_pods import LocalPods
from tests.harness.operator_process import NAMESPACE, OperatorProcess
from tests.held_unit import held_unit
from tools.localcluster import binaries, pods
from tools.localcluster.prometheus import start_prometheus_of_targets, write_targets
from tools.monitoring import dashboards
from tools.monitoring.grafana import Dashboard

NAME = "llama"
RATE_INTERVAL = "15s"
"""Of a Prometheus that scrapes every second."""
TRAINER: dict[str, Any] = {
    "model": {"layers": 1, "embedDim": 32, "heads": 2},
    "data": {"tokenizer": "bytes"},
    "sequenceLength": 32,
    "batchSize": 8,
    "steps": 100_000_000,
    "logEverySteps": 5,
    "checkpoint": {"everySeconds": 3, "keep": 2},
    "evaluation": {"everySteps": 40, "batches": 1},
    "trackers": {"tensorboard": {}},
}
EXTRACTION = "features"
EXTRACTING: dict[str, Any] = {
    "task": "extract",
    "model": {"layers": 1, "embedDim": 32, "heads": 2, "preset": "tiny"},
    "data": {"tokenizer": "bytes"},
    "sequenceLength": 64,
    "extract": {"layers": ["last"], "positions": "mean", "unitRows": 500},
}
CORPUS_COPIES = 4000
"""Of a small text: an extraction of them takes minutes; a unit that is held keeps it from being over anywhere."""
OTHERS = {"gemma": "v5e-8", "mixtral": "v6e-4", "waiting": "v5p-8"}
"""Jobs of one host beside it, whose pods run nothing; the last one's never starts."""


@dataclass
class Scenario:
    """The parts, once all of them run."""

    url: str
    """Of Prometheus."""
    job: LocalPods
    extraction: LocalPods
    operator: OperatorProcess
    directory: Path

    def scrape(self) -> None:
        """Has Prometheus scrape the processes that are there now."""
        labels = {"namespace": NAMESPACE, "pod": "tpujob-operator-0"}
        targets = [*self.job.targets, *self.extraction.targets, (self.operator.metrics_address, labels)]
        write_targets(self.directory, targets, url=self.url)

    def queries(self) -> set[tuple[str, str]]:
        """Each query of the dashboards, and what Grafana makes of it when these jobs are chosen."""
        return {
            (query.expression, filled(query.expression, self.variables(page) | {"$__rate_interval": RATE_INTERVAL}))
            for page in dashboards.ALL.values()
            if page
            is not dashboards.chips.DASHBOARD  # These jobs train without chips: scenes/monitoring/test_fleet.py.
            for panel in page.panels
            for query in panel.queries
        }

    def variables(self, page: Dashboard) -> dict[str, str]:
        """What is chosen at the top of a dashboard."""
        name = EXTRACTION if page is dashboards.extraction.DASHBOARD else NAME
        return {"$namespace": self.job.jobs.namespace, "$tpujob": name}

    def let_saves_fail(self) -> None:
        """Puts a file where the job's checkpoints belong."""
        steps = self.job.checkpoints / "steps"
        steps.rename(steps.with_name("moved-away"))
        steps.write_text("not a folder")

    def crash_and_go_on(self) -> None:
        """Kills one process of the job, and starts all for the pods of the next attempt."""
        self.job.crash(1)
        self.job.start()
        self.scrape()
        self.job.wait("the next attempt to train", lambda report: report.get("phase") == "training")


@contextmanager
def played(
    jobs: Jobs, operator: OperatorProcess, directory: Path, data: str, trainer: Mapping[str, Any] = TRAINER
) -> Iterator[Scenario]:
    """A job of two processes that trains, scraped as its operator is.

    Args:
        jobs: Where its resource goes, and those of the others.
        operator: Serves their namespace.
        directory: For whatever the parts write.
        data: A path of text files.
        trainer: The block of that name, without the data's path.
    """
    configured = {**trainer, "data": {**trainer["data"], "path": data}}
    spec = {"accelerator": "cpu:2x1", "restarts": {"crashes": 5}, "trainer": configured}
    job = LocalPods(jobs, NAME, directory / "job", spec)
    extraction = _extraction(jobs, directory)
    for name, accelerator in OTHERS.items():
        jobs.create(name, accelerator=accelerator, checkpointDir=None)
    for name in list(OTHERS)[:-1]:
        for pod in jobs.wait_pods(name, 1):
            pods.set_running(jobs.api, pod)
    job.create()
    extraction.create()
    prometheus, url = start_prometheus_of_targets(directory / "prometheus", binaries.path("prometheus"))
    try:
        with job.reporting(), held_unit(lambda name, claim: replace(directory / "features" / name, claim)):
            job.start()
            extraction.start()
            scenario = Scenario(url, job, extraction, operator, directory / "prometheus")
            scenario.scrape()
            extraction.wait("units that are done", lambda report: (report.get("units_done") or 0) > 1)
            job.wait("a committed checkpoint", lambda report: report.get("committed_step"))
            yield scenario
    finally:
        extraction.stop()
        job.stop()
        prometheus.stop()


def _extraction(jobs: Jobs, directory: Path) -> LocalPods:
    data = write_text(directory / "corpus", copies=CORPUS_COPIES)
    trainer = {**EXTRACTING, "data": {**EXTRACTING["data"], "path": data}}
    spec = {"accelerator": "cpu:1x1", "workers": 1, "checkpointDir": str(directory / "features"), "trainer": trainer}
    return LocalPods(jobs, EXTRACTION, directory / "extraction", spec, pods=1, address=None)


def replace(file: Path, content: bytes) -> None:
    """Writes a file such that nobody reads a part of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_bytes(content)
    unfinished.replace(file)


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """An expression with its variables replaced."""
    for variable, value in variables.items():
        expression = expression.replace(variable, value)
    return expression


def write_text(folder: Path, copies: int = 1) -> str:
    """A small text, and the path by which a job reads it."""
    folder.mkdir(parents=True)
    table = pa.table({"text": [f"{number:03d} is one document of many, and it says little." for number in range(512)]})
    with pq.ParquetWriter(folder / "text.parquet", table.schema) as file:
        for _ in range(copies):
            file.write_table(table, row_group_size=64 if copies == 1 else None)
    return f"{folder}/*.parquet"
