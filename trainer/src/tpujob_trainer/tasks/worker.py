"""What a task of independent workers needs around its work: name, report, claims, uploads, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from tpujob_contract import ExitCode, IndependentWorker, Process
from tpujob_contract.report import Phase
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.data.sources.read_meter import METER
from tpujob_trainer.errors import TrainerError
from tpujob_trainer.exit.stop_request import StopRequest
from tpujob_trainer.exit.watchdog import Watchdog
from tpujob_trainer.extract.config import ExtractConfig
from tpujob_trainer.storage import errors, open_bucket
from tpujob_trainer.telemetry import compile_cache, server
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.process import process_age
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.workers.board import Board
from tpujob_trainer.workers.choice import DONE
from tpujob_trainer.workers.claims import Claims
from tpujob_trainer.workers.engine import Engine, Tally, Work
from tpujob_trainer.workers.uploads import Scratch, Uploads

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """One worker of a job, or a process on its own."""

    name: str
    """Unlike that of any other one, this process's predecessors included."""
    owner: str
    """The job as namespace/name."""
    directory: str
    stop: StopRequest
    report: Report

    @classmethod
    def begin(
        cls,
        process: Process,
        config: TrainerConfig,
        stop: StopRequest,
        directory: str,
        *,
        in_pod: bool,
    ) -> Self:
        """The worker of this process, which serves its report from here on."""
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
        index = process.worker if isinstance(process, IndependentWorker) else 0
        workers = process.workers if isinstance(process, IndependentWorker) else 1
        metrics.devices = jax.local_devices()
        compile_cache.use(directory, enabled=config.compile_cache)
        name = f"{process.name}-{index}-{secrets.token_hex(3)}"
        report.update(process_id=index, processes=workers, attempt=name, checkpoint=directory)
        logger.info(
            "Worker %s: process %d, %d devices (%s), output in %s",
            name, os.getpid(), jax.local_device_count(), jax.local_devices()[0].device_kind, directory,
        )  # fmt: skip

        def told(code: int, message: str) -> None:
            phases: dict[int, Phase] = {ExitCode.FINISHED: "finished", ExitCode.STOPPED: "stopping"}
            report.enter(phases.get(code, "failed"))
            if code != ExitCode.FINISHED:
                report.update(message=message)

        stop.at_exit(told)
        return cls(name, process.owner, directory, stop, report)

    def work(self, work: Work[Any, Any], units: int, config: ExtractConfig) -> int:
        """Does the units of a list until all are done; the exit code.

        Raises:
            TrainerError: a unit could not be finished; what was uploaded is kept.
        """
        objects = open_bucket(self.directory)
        claims = Claims(objects, self.name, renew_seconds=config.lease_seconds / 4, lapse_seconds=config.lease_seconds)
        scratch = Scratch(config.scratch, config.scratch_bytes)
        self.report.update(steps=units)
        self.report.enter("extracting")
        self.stop.entered_loop()
        engine = Engine(
            objects,
            claims,
            Board(objects, self.name, units),
            Uploads(self.directory),
            scratch,
            worker=self.name,
            units=units,
            stop_requested=lambda: self.stop.requested,
            on_progress=self._progress,
        )
        with contextlib.closing(scratch):
            try:
                is_complete = engine.run(work)
            except OSError as error:
                if errors.is_out_of_reach(error) and not errors.is_refused(error):
                    raise TrainerError(
                        f"spec.checkpointDir: {self.directory} cannot be reached at present "
                        f"({errors.brief(error)}); finished units are kept"
                    ) from error
                raise
        logger.info("Corpus bytes read: %d; scratch: at most %d bytes", METER.bytes_read, scratch.most_bytes)
        if is_complete:
            self.report.update(message=f"complete: all {units} units are done")
            return ExitCode.FINISHED
        return ExitCode.STOPPED

    def _progress(self, tally: Tally, states: np.ndarray) -> None:
        done = int((states == DONE).sum())
        if done != self.report.step:
            self.report.update(step=done)
        self.report.update(units=len(states), units_done=done, units_here=tally.units, rows_here=tally.rows)
