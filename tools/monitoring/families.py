"""Every metric of trainer and operator, read from the code that exports it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector, CollectorRegistry

from tpujob_contract.reports.report import PHASES as PROCESS_PHASES
from tpujob_operator.base import metrics as operator_metrics
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_resource.models.phases import Phase as JobPhase
from tpujob_resource.models.restart_causes import RESTARTS, Cause
from tpujob_trainer.storage.read_meter import CAUSES
from tpujob_trainer.telemetry.goodput import CATEGORIES
from tpujob_trainer.telemetry.metrics import UNIT_FAILURES, Metrics
from tpujob_trainer.telemetry.report import Report

LABEL_VALUES: dict[str, tuple[str, ...] | str] = {
    "category": CATEGORIES,
    "cause": CAUSES,
    "kind": ("in_use", "peak", "limit"),
    "device": "id of a device of this process",
    "outcome": "`used`, and each cause for which a row is left out",
    "tracker": "`metrics.csv`, `samples.jsonl`, `tensorboard`, `wandb`: those that there are",
    "accelerator": "as in `spec.accelerator`",
    "job_namespace": "namespace of the TpuTrainingJob",
    "job_name": "name of the TpuTrainingJob",
    "queue": "as in `spec.queue`, or empty",
    "owner": "value of the job's owner label (`metrics.ownerLabel` of the chart), or empty",
    "spot": "`true` or `false`, as in `spec.capacity.spot`",
    "resource": "`tputrainingjobs`, `jobsets`, `pods` and what else the operator asks for",
    "method": "HTTP method",
    "status": "HTTP status, or `none` without an answer",
    "result": "see the metric's meaning",
}
"""The values of each label; those of `phase` and `cause` differ between trainer and operator, see `label_values`."""
UNIT_ENDINGS = {
    "_timestamp_seconds": "Unix time, s",
    "_tokens_per_second": "tokens/s",
    "_rows_per_second": "rows/s",
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_fraction": "0 to 1",
    "_loss": "nats per token",
    "_tokens": "tokens",
}


@dataclass(frozen=True)
class Family:
    """One metric."""

    name: str
    """As in queries; a histogram's is without `_bucket`, `_sum` and `_count`."""
    kind: str
    labels: tuple[str, ...]
    meaning: str
    buckets: int = 0

    @property
    def unit(self) -> str:
        """The unit, in words; `count` if the name contains none."""
        base = self.name.removesuffix("_total")
        return next((unit for ending, unit in UNIT_ENDINGS.items() if base.endswith(ending)), "count")

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(f"{self.name}{ending}" for ending in ("_bucket", "_count", "_sum"))


def trainer() -> list[Family]:
    """The metrics of a training process, ordered by name."""
    return _families(Metrics(Report()).registry)


def operator() -> list[Family]:
    """The metrics of an operator, ordered by name."""
    registry = CollectorRegistry()
    for collector in vars(operator_metrics).values():
        if isinstance(collector, MetricWrapperBase):
            registry.register(collector)
    registry.register(JobGauges())
    return _families(registry)


def label_values(family: Family, label: str) -> tuple[str, ...] | str:
    """The possible values of a metric's label: all of them, or a description if they are not fixed."""
    if label == "phase":
        return tuple(JobPhase) if family.name.startswith(operator_metrics.PREFIX) else PROCESS_PHASES
    if label == "cause" and family.name.startswith(operator_metrics.PREFIX):
        return RESTARTS if "job_name" in family.labels else tuple(Cause)
    if family.name == UNIT_FAILURES:
        return "`storage`, `data`, `configuration`, `scratch_full`, `out_of_memory`, or the name of an error"
    return LABEL_VALUES[label]


def _families(registry: CollectorRegistry) -> list[Family]:
    collectors: Iterable[Collector] = registry._collector_to_names
    return sorted((family for one in collectors for family in _of_collector(one)), key=lambda family: family.name)


def _of_collector(collector: Collector) -> Iterator[Family]:
    for metric in collector.collect():
        labels = collector._labelnames if isinstance(collector, MetricWrapperBase) else _labels(metric)
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        buckets = len(getattr(collector, "_upper_bounds", ()))
        yield Family(name, metric.type, tuple(labels), metric.documentation, buckets)


def _labels(metric: Metric) -> tuple[str, ...]:
    return tuple(getattr(metric, "_labelnames", ()))
