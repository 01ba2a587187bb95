"""A worker of a batch job: its name, report, claims, uploads and exit code."""

import contextlib
import functools
import logging
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from tpujob_contract import ExitCode, IndependentWorker, Process
from tpujob_contract.reports.report import Phase
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract.inspection import Inspection
from tpujob_trainer.corpus.workers.claims import Claims, next_name, once
from tpujob_trainer.corpus.workers.engine import Engine
from tpujob_trainer.corpus.workers.finishing import Counters
from tpujob_trainer.corpus.workers.progress_index import Listing, ProgressIndex
from tpujob_trainer.corpus.workers.states import Rate, UnitStates
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import UnitsConfig, Work
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.session.session import serve_report
from tpujob_trainer.storage import errors, open_bucket
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.read_meter import METER
from tpujob_trainer.telemetry import compile_cache
from tpujob_trainer.telemetry.report import Report

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """A worker of a job, or a single process without one."""

    name: str
    """Unique, also among earlier processes of the same worker."""
    owner: str
    """The job as namespace/name."""
    directory: str
    stop: StopRequest
    report: Report
    chips: int
    """Of this host."""

    @classmethod
    def start(
        cls,
        process: Process,
        config: TrainerConfig,
        stop: StopRequest,
        directory: str,
        *,
        in_pod: bool,
    ) -> Self:
        """Starts the worker of this process; its report is served from here on."""
        report, metrics = serve_report(process, config.watchdog, stop, in_pod=in_pod)
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
        # Of every worker: the operator reads the first one's report, and that worker may end before the operator asks.
        stop.final_report = report.snapshot
        chips = process.chips_per_host or jax.local_device_count()
        return cls(name, process.owner, directory, stop, report, chips)

    def work(
        self,
        work: Work[Any, Any],
        units: int,
        config: UnitsConfig,
        field: str,
        unit_rows: np.ndarray | None = None,
    ) -> int:
        """Works on the units of a list until all are done; returns the exit code.

        Args:
            work: What to do with a unit.
            units: Length of the list.
            config: Leases and scratch.
            field: Path of `config` in the job, for messages.
            unit_rows: int64 [units], rows of each; None: not counted.

        Raises:
            TrainerError: a unit could not be finished; uploaded results are kept.
        """
        objects = open_bucket(self.directory)
        renew_seconds, lapse_seconds = config.lease_seconds / 4, config.lease_seconds
        claims = Claims(objects, self.name, renew_seconds=renew_seconds, lapse_seconds=lapse_seconds)
        first = functools.partial(once, objects, self.name, renew_seconds=renew_seconds, lapse_seconds=lapse_seconds)
        with errors.used(self.directory):
            check = next_name(objects, "check")
        scratch = Scratch(config.scratch, config.scratch_bytes, field=f"{field}.scratch")
        self.report.update(steps=units)
        self.report.enter("extracting")
        self.stop.entered_loop()
        engine = Engine(
            objects,
            claims,
            ProgressIndex(objects, self.name, units),
            Uploads(self.directory),
            scratch,
            worker=self.name,
            units=units,
            chips=self.chips,
            chip_kind=jax.local_devices()[0].device_kind,
            stop_requested=lambda: self.stop.requested,
            on_progress=_Figures(self.report, unit_rows),
            on_idle=self.report.tick,
            withdraw_damaged=lambda: first(check, lambda: Inspection(self.directory).withdraw_damaged(first)),
        )
        with contextlib.closing(scratch):
            try:
                is_complete = engine.run(work)
            except OSError as error:
                if errors.is_out_of_reach(error):
                    raise unusable(self.directory, error) from error
                raise
        logger.info("Corpus bytes read: %d; scratch: at most %d bytes", METER.bytes_read, scratch.most_bytes)
        if is_complete:
            again = (
                f"; the results of {engine.counters.gone} were gone and are made again" if engine.counters.gone else ""
            )
            self.report.update(message=f"complete: all {units} units are done{again}")
            return ExitCode.FINISHED
        return ExitCode.STOPPED


class _Figures:
    """Writes the figures of the engine into the report."""

    def __init__(self, report: Report, unit_rows: np.ndarray | None) -> None:
        self._report, self._unit_rows = report, unit_rows
        self._rate = Rate()

    def __call__(self, counters: Counters, states: UnitStates, listing: Listing | None) -> None:
        done = states.num_done
        if done != self._report.step:
            self._report.update(step=done)
        self._report.update(units=len(states), units_done=done, units_here=counters.units, rows_here=counters.rows)
        self._report.update(values_not_finite=counters.not_finite)
        if listing is not None:
            claimed = min(listing.claimed, len(states) - done)
            self._report.update(units_claimed=claimed, unit_failures=dict(listing.failures))
        if self._unit_rows is not None:
            now = time.monotonic()
            self._rate.add(now, int(self._unit_rows[states.done()].sum()))
            self._report.update(rows_per_second=self._rate.rows_per_second(now))
