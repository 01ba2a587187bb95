"""The start and end of a run: the other processes, the report, the checkpoint directory, the attempt's file."""

import datetime
import logging
from dataclasses import dataclass
from typing import Protocol, Self

import jax

from tpujob_contract import DistributedProcess, ExitCode, LocalProcess, Process
from tpujob_contract.connections import http_server
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import Phase
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.config.schema import CheckpointConfig, PreflightConfig, configuration_hash
from tpujob_trainer.distributed import initialize
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.exit.watchdog import Watchdog, WatchdogConfig
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.distributed.peers import Peers
from tpujob_trainer.model.mesh.build import require_devices
from tpujob_trainer.session.preflight import check_hosts
from tpujob_trainer.storage.read_meter import METER
from tpujob_trainer.telemetry import compile_cache, server
from tpujob_trainer.telemetry.goodput import Goodput
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.process import process_age
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.telemetry.report import Attempt, Report


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
        host=http_server.address(in_pod=in_pod),
        port=process.report_port,
        curve=report.curve,
        name=process.owner,
        profiler=profiler,
        secret=process.secret,
    )
    return report, metrics


logger = logging.getLogger(__name__)


class SessionConfig(Protocol):
    """The part of a configuration that a session reads; implemented by `config.schema.TrainerConfig`."""

    @property
    def checkpoint(self) -> CheckpointConfig:
        """The block whose `adopt` names the job whose directory may be taken over."""

    @property
    def preflight(self) -> PreflightConfig:
        """What is checked of the hosts."""

    @property
    def watchdog(self) -> WatchdogConfig:
        """When a run that makes no progress is ended."""

    @property
    def heartbeat_seconds(self) -> int:
        """Silence after which a process counts as lost."""

    @property
    def compile_cache(self) -> bool:
        """Whether compiled programs are kept in the checkpoint directory."""


@dataclass(frozen=True)
class Session:
    """One attempt of a run in this process, once all processes are connected."""

    runtime: Runtime
    directory: str | None
    """The checkpoint directory; None: nothing is saved."""
    slices: int
    stop: StopRequest
    report: Report
    metrics: Metrics
    claim: ownership.Claim | None
    attempt: Attempt | None
    goodput: Goodput
    profiler: Profiler

    @classmethod
    def start(
        cls,
        process: DistributedProcess | LocalProcess,
        config: SessionConfig,
        stop: StopRequest,
        *,
        in_pod: bool,
        profiler: Profiler | None = None,
    ) -> Self:
        """Starts the session of this process; waits for the others. `profiler` answers HTTP requests from the start.

        Raises:
            PeersMissingError: a process did not connect.
            ConfigurationError: the checkpoint directory belongs to another job.
            TrainerError: JAX does not see the requested devices.
        """
        started = datetime.datetime.now(datetime.UTC)
        report, metrics = serve_report(process, config.watchdog, stop, in_pod=in_pod, profiler=profiler)

        runtime = _joined(process, config, stop, report)
        preflight = check_hosts(runtime, config.preflight) if config.preflight.collectives else None
        directory = process.checkpoint_dir
        claim, attempt = None, None
        if directory:
            claim = _claimed(directory, process.owner, config, runtime, report)
            attempt = Attempt(directory, attempt_id=runtime.attempt_id, started=started, is_lead=runtime.is_lead)
        metrics.devices = jax.local_devices()
        cache = compile_cache.use(directory, enabled=config.compile_cache)
        if cache and runtime.is_lead:
            logger.info("Compiled programs are kept in %s", cache)
        report.update(
            process_id=runtime.process_id,
            processes=runtime.num_processes,
            attempt=runtime.attempt_id,
            checkpoint=directory,
            preflight_message="; ".join(preflight.warnings) or None if preflight else None,
        )
        session = cls(
            runtime=runtime,
            directory=directory,
            slices=process.slices if isinstance(process, DistributedProcess) else 1,
            stop=stop,
            report=report,
            metrics=metrics,
            claim=claim,
            attempt=attempt,
            goodput=Goodput(directory, report, keeps_file=runtime.is_lead),
            profiler=profiler or Profiler(None, process_id=runtime.process_id),
        )
        stop.at_exit(session._at_exit)
        if runtime.is_lead:
            stop.final_report = report.snapshot
        if attempt:
            attempt.write(report.snapshot())
        return session

    def end(self) -> None:
        """Disconnects together with the other processes, for a run that ends normally."""
        self.runtime.close()
        if self.claim:
            self.claim.close()

    def _at_exit(self, code: int, message: str) -> None:
        phases: dict[int, Phase] = {ExitCode.FINISHED: "finished", ExitCode.STOPPED: "stopping"}
        self.report.enter(phases.get(code, "failed"))
        if code != ExitCode.FINISHED:
            self.report.update(message=message)
        self.goodput.close()
        if self.attempt:
            if self.stop.stacks:
                self.attempt.write_stacks(self.runtime.process_id, self.stop.stacks)
            self.attempt.write(self.report.snapshot(), exit_code=code)


def _joined(
    process: DistributedProcess | LocalProcess, config: SessionConfig, stop: StopRequest, report: Report
) -> Runtime:
    """The runtime of this process, once all processes are connected and JAX sees all devices."""

    def met(peers: Peers) -> None:
        stop.joined(peers)
        report.follow(lambda: {"straggler_message": peers.stragglers()})

    if process.in_place_attempt:
        report.update(
            in_place_restarts=process.in_place_attempt,
            in_place_cause=process.in_place_cause,
            in_place=in_place.parse(process.in_place_account),
        )

    runtime = initialize.start(
        process,
        heartbeat_seconds=config.heartbeat_seconds,
        configuration_hash=configuration_hash(process.config or "{}"),
        on_met=met,
    )
    if isinstance(process, DistributedProcess):
        require_devices(
            num_processes=process.num_processes,
            chips_per_host=process.chips_per_host,
            devices=jax.devices(),
            name=runtime.coordination.name,
        )
    return runtime


def _claimed(directory: str, owner: str, config: SessionConfig, runtime: Runtime, report: Report) -> ownership.Claim:
    """Claims the checkpoint directory, and reports what it waits for."""
    return ownership.claim(
        directory,
        owner=owner,
        adopt=config.checkpoint.adopt,
        runtime=runtime,
        notice=lambda message: report.update(checkpoint_message=message),
    )
