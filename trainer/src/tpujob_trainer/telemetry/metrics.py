"""Every Prometheus metric of the trainer, by name. Dashboards and rules are checked against `NAMES`.

Facts of the report are read from it at each scrape, so that they always agree with it; the rest is counted here.
"""

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tpujob_trainer.storage.read_meter import CAUSES, METER, ReadMeter
from tpujob_trainer.telemetry.compile_cache import COUNTS
from tpujob_trainer.telemetry.process import resident_bytes
from tpujob_trainer.telemetry.report import Report

STEP_SECONDS_BUCKETS = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
CHECKPOINT_SECONDS_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

GAUGES = {
    "step": ("tpujob_step", "Last finished training step."),
    "steps": ("tpujob_steps", "Training steps of the whole run."),
    "loss": ("tpujob_loss", "Training loss of the last step that was read, in nats per token."),
    "gradient_norm": ("tpujob_gradient_norm", "Global norm of the gradient before clipping, of the last step read."),
    "evaluation_loss": ("tpujob_evaluation_loss", "Loss of the last evaluation, in nats per token."),
    "evaluation_step": ("tpujob_evaluation_step", "Training step of the last evaluation."),
    "tokens_per_second": ("tpujob_tokens_per_second", "Tokens of all processes per second, over the last interval."),
    "mfu": ("tpujob_mfu_ratio", "Model FLOPs utilisation over the last interval, of the devices' peak in bfloat16."),
    "mfu_causal": (
        "tpujob_mfu_causal_ratio",
        "The same, with attention counted as a causal row of one document needs it, as MaxText counts.",
    ),
    "goodput_fraction": ("tpujob_goodput_ratio", "Part of the run's time, over all attempts, in steps that count."),
    "committed_step": ("tpujob_checkpoint_committed_step", "Step of the last committed checkpoint."),
    "committed_time": ("tpujob_checkpoint_committed_timestamp_seconds", "When the last checkpoint was committed."),
    "checkpoint_failing_since": (
        "tpujob_checkpoint_failing_since_timestamp_seconds",
        "Since when saves fail; absent while the last one was committed.",
    ),
    "data_wait_fraction": (
        "tpujob_data_wait_fraction",
        "Part of the last minute for which the loop waited for data; absent before the second batch.",
    ),
    "restored_from": ("tpujob_restored_from_step", "Step of the checkpoint from which this attempt continued."),
    "units": ("tpujob_units", "Units of the whole extraction."),
    "units_done": ("tpujob_units_done", "Units that all workers have finished."),
    "units_claimed": ("tpujob_units_claimed", "Units that workers held when they were last listed."),
    "units_here": ("tpujob_units_here", "Units that this worker has finished."),
    "rows_per_second": ("tpujob_rows_per_second", "Rows that all workers finished per second, over the last minutes."),
}
"""Fact of the report → metric, which is absent while the fact is unknown."""

PHASE = "tpujob_phase"
PHASE_SECONDS = "tpujob_phase_seconds"
HEARTBEAT = "tpujob_heartbeat_timestamp_seconds"
GOODPUT = "tpujob_goodput_seconds"
DATA_WAIT = "tpujob_data_wait_seconds"
UNIT_FAILURES = "tpujob_unit_failures"


class Metrics:
    """The counters of a process and the facts of its report, in a separate registry."""

    def __init__(self, report: Report) -> None:
        registry = self.registry = prometheus_client.CollectorRegistry()
        counter = functools.partial(prometheus_client.Counter, registry=registry)
        gauge = functools.partial(prometheus_client.Gauge, registry=registry)
        seconds = functools.partial(prometheus_client.Histogram, registry=registry)
        self.tokens = counter("tpujob_tokens", "Tokens trained on by all processes in this attempt.")
        self.step_seconds = seconds("tpujob_step_seconds", "Time of one step.", buckets=STEP_SECONDS_BUCKETS)
        self.checkpoint_blocking_seconds = seconds(
            "tpujob_checkpoint_blocking_seconds",
            "Time for which a save kept the loop waiting.",
            buckets=CHECKPOINT_SECONDS_BUCKETS,
        )
        self.checkpoint_commit_seconds = seconds(
            "tpujob_checkpoint_commit_seconds",
            "Time from the start of a save to its commit.",
            buckets=CHECKPOINT_SECONDS_BUCKETS,
        )
        self.checkpoint_failures = counter("tpujob_checkpoint_failures", "Saves that did not become a checkpoint.")
        self.checkpoint_interval_seconds = gauge(
            "tpujob_checkpoint_interval_seconds",
            "Longest time between two saves, `checkpoint.everySeconds`; 0 without a checkpoint directory.",
        )
        self.nonfinite_steps = counter(
            "tpujob_nonfinite_steps",
            "Steps of this attempt whose loss or gradient was not finite; they changed no weight.",
        )
        self.rollbacks = counter("tpujob_rollbacks", "Times that this attempt went back to a checkpoint.")
        self.checkpoints_passed_over = counter(
            "tpujob_checkpoints_passed_over",
            "Saves that were not started, because storage was busy with the one before.",
        )
        self.checkpoints_unusable = counter(
            "tpujob_checkpoints_unusable", "Checkpoints that were found damaged in a restore, and set aside."
        )
        self.local_copies = counter(
            "tpujob_local_copies", "Copies of the state that this process wrote to its disk, `checkpoint.local`."
        )
        self.local_copy_failures = counter(
            "tpujob_local_copy_failures", "Copies of the state that this process could not write to its disk."
        )
        self.local_copy_timestamp = gauge(
            "tpujob_local_copy_timestamp_seconds",
            "When this process wrote its newest copy, in Unix seconds; 0 while it has written none.",
        )
        self.tracker_failures = counter(
            "tpujob_tracker_failures", "Events that did not reach an experiment tracker.", labelnames=["tracker"]
        )
        self.devices: Sequence[Any] = ()
        """Devices of this process, once JAX has started; for their memory metrics."""
        self.heartbeat_at: float | None = None
        """Unix time of the training loop's last iteration; None: it has not started."""
        self.registry.register(_FromReport(report))
        self.registry.register(_FromReads(METER))
        self.registry.register(_FromProcess(self))

    def heartbeat(self) -> None:
        """Records an iteration of the training loop."""
        self.heartbeat_at = time.time()

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry)


def _by_label[Family: (CounterMetricFamily, GaugeMetricFamily)](family: Family, values: object) -> Family:
    """A family with a series for each of its values by label; without any if they are unknown."""
    for label, value in values.items() if isinstance(values, dict) else ():
        family.add_metric([label.replace(" ", "_")], value)
    return family


class _FromReport(Collector):
    def __init__(self, report: Report) -> None:
        self._report = report

    def describe(self) -> Iterable[Metric]:
        return self._families({"seconds": {}, "phase": None, "data_wait_seconds": 0.0})

    def collect(self) -> Iterable[Metric]:
        return self._families(self._report.snapshot())

    def _families(self, facts: dict[str, object]) -> Iterator[Metric]:
        for fact, (name, text) in GAUGES.items():
            value = facts.get(fact)
            family = GaugeMetricFamily(name, text)
            if isinstance(value, int | float):
                family.add_metric([], float(value))
            yield family
        phase = {str(facts["phase"]): 1} if facts["phase"] else None
        text = "1 for the phase that the process is in."
        yield _by_label(GaugeMetricFamily(PHASE, text, labels=["phase"]), phase)
        text = "Time spent in each phase of this attempt."
        yield _by_label(CounterMetricFamily(PHASE_SECONDS, text, labels=["phase"]), facts["seconds"])
        text = "Where the time of the run went, over all its attempts; process 0 has it."
        yield _by_label(GaugeMetricFamily(GOODPUT, text, labels=["category"]), facts.get("goodput"))
        text = "How often a worker did not finish a unit, of all workers."
        yield _by_label(GaugeMetricFamily(UNIT_FAILURES, text, labels=["cause"]), facts.get("unit_failures"))
        waited = facts["data_wait_seconds"]
        assert isinstance(waited, int | float)
        yield CounterMetricFamily(DATA_WAIT, "Time for which the loop waited for data.", value=float(waited))


class _FromProcess(Collector):
    """Metrics of compiling, and of host and device memory."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "tpujob_compile_seconds", "Time spent compiling, or reading what was compiled.", value=COUNTS.seconds
        )
        yield CounterMetricFamily(
            "tpujob_compile_cache_hits", "Programs found in the compile cache.", value=COUNTS.hits
        )
        yield CounterMetricFamily(
            "tpujob_compile_cache_misses", "Programs that were not in the compile cache.", value=COUNTS.misses
        )
        # Not 0 before the first iteration: its age would be decades.
        yield GaugeMetricFamily(HEARTBEAT, "When the training loop last turned.", value=self._metrics.heartbeat_at)
        yield GaugeMetricFamily("tpujob_host_memory_bytes", "Resident memory of this process.", value=resident_bytes())
        memory = GaugeMetricFamily(
            "tpujob_device_memory_bytes",
            "Memory of each device of this process; absent where the device does not report it.",
            labels=["device", "kind"],
        )
        for device in self._metrics.devices:
            told = device.memory_stats() or {}
            for kind, name in (("in_use", "bytes_in_use"), ("peak", "peak_bytes_in_use"), ("limit", "bytes_limit")):
                if name in told:
                    memory.add_metric([str(device.id), kind], told[name])
        yield memory


class _FromReads(Collector):
    def __init__(self, meter: ReadMeter) -> None:
        self._meter = meter

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "tpujob_data_read_bytes", "Bytes of data files that were read.", value=self._meter.bytes_read
        )
        yield CounterMetricFamily(
            "tpujob_data_requests", "Reads and listings of data, the repeated ones too.", value=self._meter.requests
        )
        retries = CounterMetricFamily("tpujob_data_retries", "Reads that failed and were repeated.", labels=["cause"])
        yield _by_label(retries, {cause: self._meter.retries[cause] for cause in CAUSES})
        rows = GaugeMetricFamily(
            "tpujob_data_rows", "Rows read so far: those used, and those left out by cause.", labels=["outcome"]
        )
        yield _by_label(rows, {name.replace("-", "").lower(): n for name, n in {"used": 0, **self._meter.rows}.items()})


def _series(metrics: Metrics) -> Iterator[str]:
    for family in metrics.registry.collect():
        yield from (sample.name for sample in family.samples)
        if not family.samples:
            yield family.name + ("_total" if family.type == "counter" else "")


NAMES = frozenset(name for name in _series(Metrics(Report())) if not name.endswith("_created"))
"""Names of all series, as in queries."""
