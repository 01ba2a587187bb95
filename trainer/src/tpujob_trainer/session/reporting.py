"""The report of a process, served from its first seconds on, and the watchdog that reads it."""

from __future__ import annotations

from tpujob_contract import Process
from tpujob_contract.connections import pages
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.exit.watchdog import Watchdog, WatchdogConfig
from tpujob_trainer.storage.read_meter import METER
from tpujob_trainer.telemetry import server
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.process import process_age
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.telemetry.report import Report


def serve_report(
    process: Process, watchdog: WatchdogConfig, stop: StopRequest, *, in_pod: bool, profiler: Profiler | None = None
) -> tuple[Report, Metrics]:
    """Starts to serve the report of this process and its metrics at its report port, and returns both."""
    report = Report(age=process_age())
    report.follow(METER.facts)
    metrics = Metrics(report)
    stop.watched(Watchdog(report, watchdog))
    server.serve(
        report.snapshot,
        metrics.exposition,
        host=pages.address(in_pod=in_pod),
        port=process.report_port,
        curve=report.curve,
        name=process.owner,
        profiler=profiler,
        secret=process.secret,
    )
    return report, metrics
