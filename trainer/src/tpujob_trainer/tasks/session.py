"""What a task starts and ends with: the other processes, the report, the checkpoint directory, the attempt's file."""

from __future__ import annotations

import datetime
import logging
from dataclasses import dataclass
from typing import Self

import jax

from tpujob_contract import DistributedProcess, ExitCode, LocalProcess
from tpujob_contract.report import Phase
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.config.schema import TrainerConfig, configuration_hash
from tpujob_trainer.data.sources.read_meter import METER
from tpujob_trainer.distributed import initialize
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.exit.stop_request import StopRequest
from tpujob_trainer.exit.watchdog import Watchdog
from tpujob_trainer.model.mesh import require_devices
from tpujob_trainer.telemetry import attempts, compile_cache, server
from tpujob_trainer.telemetry.goodput import Goodput
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.process import process_age
from tpujob_trainer.telemetry.report import Report

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Session:
    """One attempt of a run in this process, from the moment all processes are there."""

    runtime: Runtime
    directory: str | None
    """The checkpoint directory; None: nothing is saved."""
    slices: int
    stop: StopRequest
    report: Report
    metrics: Metrics
    claim: ownership.Claim | None
    attempt: attempts.Attempt | None
    goodput: Goodput

    @classmethod
    def begin(
        cls, process: DistributedProcess | LocalProcess, config: TrainerConfig, stop: StopRequest, *, in_pod: bool
    ) -> Self:
        """The session of this process; waits for the others.

        Raises:
            PeersMissingError: somebody did not come.
            ConfigurationError: the checkpoint directory is another job's.
            TrainerError: jax does not see the devices that were asked for.
        """
        started = datetime.datetime.now(datetime.UTC)
        report = Report(age=process_age())
        report.follow(METER.facts)
        metrics = Metrics(report)
        stop.watched(Watchdog(report, config.watchdog))
        host = server.address(in_pod=in_pod)
        server.serve(
            report.snapshot,
            metrics.exposition,
            host=host,
            port=process.report_port,
            curve=report.curve,
            name=process.owner,
        )
        runtime = initialize.start(
            process,
            heartbeat_seconds=config.heartbeat_seconds,
            configuration_hash=configuration_hash(process.config or ""),
            on_met=stop.joined,
        )
        if isinstance(process, DistributedProcess):
            require_devices(
                num_processes=process.num_processes,
                chips_per_host=process.chips_per_host,
                devices=jax.devices(),
                name=runtime.coordination.name,
            )
        directory = process.checkpoint_dir
        claim, attempt = None, None
        if directory:
            claim = ownership.claim(directory, owner=process.owner, adopt=config.checkpoint.adopt, runtime=runtime)
            attempt = attempts.Attempt(
                directory, attempt_id=runtime.attempt_id, started=started, is_lead=runtime.is_lead
            )
        metrics.devices = jax.local_devices()
        cache = compile_cache.use(directory, enabled=config.compile_cache)
        if cache and runtime.is_lead:
            logger.info("Compiled programs are kept in %s", cache)
        report.update(
            process_id=runtime.process_id,
            processes=runtime.num_processes,
            attempt=runtime.attempt_id,
            checkpoint=directory,
        )
        slices = process.slices if isinstance(process, DistributedProcess) else 1
        account = Goodput(directory, report, keeps_file=runtime.is_lead)
        session = cls(runtime, directory, slices, stop, report, metrics, claim, attempt, account)
        stop.at_exit(session._at_exit)
        if runtime.is_lead:
            stop.final_report = report.snapshot
        if attempt:
            attempt.write(report.snapshot())
        return session

    def end(self) -> None:
        """Leaves together with the others, for a run that ends in order."""
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
