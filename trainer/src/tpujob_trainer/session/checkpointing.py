"""The checkpoints of an attempt, and their entries in report, metrics and log."""

import json
import logging
import math
from collections.abc import Mapping
from typing import Protocol

from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.config.rules import EVALUATION_LOSS
from tpujob_trainer.config.schema import CheckpointConfig, LocalCopiesConfig
from tpujob_trainer.distributed import host_check
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.axes import SLICE
from tpujob_trainer.session.session import Session
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.train.save_policy import SavePolicy

logger = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 60.0
"""Delay of the next save after a failed one."""
PASSED_OVER_SECONDS = 10.0
"""Delay after one that was not started, because storage was busy with the one before."""


class SavingConfig(Protocol):
    """When a run is saved, and its configuration; implemented by `config.resolve.ResolvedConfig`."""

    @property
    def checkpoint(self) -> CheckpointConfig:
        """When to save and what to keep."""

    def as_json(self) -> str:
        """The configuration, kept with every checkpoint."""


class Checkpointing:
    """The checkpoints of an attempt, when states are saved, and their entries in report and metrics."""

    def __init__(
        self,
        run: SavingConfig,
        described: Mapping[str, str | int],
        session: Session,
    ) -> None:
        """Does not read or write anything yet.

        Args:
            run: The configuration.
            described: All that the batches depend on; kept with every checkpoint.
            session: Of this process; without a directory nothing is saved.
        """
        runtime, metrics, directory = session.runtime, session.metrics, session.directory
        self.checkpoints: Checkpoints | None = None
        self.policy = SavePolicy(
            run.checkpoint,
            session.stop,
            decides=runtime.is_lead and directory is not None,
            measured_seconds=lambda: self.checkpoints.save_seconds if self.checkpoints else 0.0,
        )
        self._runtime = runtime
        self.report, self.stop = session.report, session.stop
        self._metrics = metrics
        self._fail_after_seconds = run.checkpoint.fail_after_seconds
        self._evaluated: dict[int, Mapping[str, float]] = {}
        """By step; includes states whose save may still be in progress."""
        if directory:
            metrics.checkpoint_interval_seconds.set(run.checkpoint.every_seconds)
            self.checkpoints = Checkpoints(
                directory,
                _settings(run, described, runtime),
                runtime,
                claim=session.claim,
                listener=Listener(
                    saved=lambda step, seconds: metrics.checkpoint_blocking_seconds.observe(seconds),
                    committed=self._committed,
                    failed=self._failed,
                    passed_over=self._passed_over,
                    unusable=self._unusable,
                ),
                copies=_local_copies(run.checkpoint.local, directory, runtime, metrics),
            )

    def record_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keeps the finite numbers with the checkpoint of the step, once it is committed."""
        if self.checkpoints is None:
            return
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._evaluated[step] = {**self._evaluated.get(step, {}), **finite}

    def _committed(self, commit: Commit, seconds: float) -> None:
        self._record_evaluations(commit.step)
        self._metrics.checkpoint_commit_seconds.observe(seconds)
        self.report.update(
            committed_step=commit.step,
            committed_time=commit.time,
            checkpoint_failing_since=None,
            checkpoint_message=None,
        )
        if self._runtime.is_lead:
            logger.info("Committed the checkpoint of step %d after %.1f s", commit.step, seconds)

    def _record_evaluations(self, committed_step: int) -> None:
        """Records the metrics found so far with their checkpoints: states are evaluated after they are saved."""
        assert self.checkpoints is not None
        facts = self.report.snapshot()
        step, loss = facts.get("evaluation_step"), facts.get("evaluation_loss")
        if step is not None and loss is not None:
            self.record_evaluation(int(step), {EVALUATION_LOSS: loss})
        for evaluated in sorted(step for step in self._evaluated if step <= committed_step):
            self.checkpoints.record_metrics(evaluated, self._evaluated[evaluated])
            if evaluated < committed_step:
                del self._evaluated[evaluated]

    def _failed(self, step: int, why: str) -> None:
        assert self.checkpoints is not None
        self._metrics.checkpoint_failures.inc()
        self.report.update(
            checkpoint_failing_since=self.checkpoints.failing_since,
            checkpoint_message=f"the checkpoint of step {step} failed: {why}; it is tried again, and the run ends once "
            f"nothing was committed for {self._fail_after_seconds} s (failAfterSeconds)",
        )
        self.policy.try_again(in_seconds=TRY_AGAIN_SECONDS)

    def _passed_over(self, step: int, why: str) -> None:
        self._metrics.checkpoints_passed_over.inc()
        self.policy.try_again(in_seconds=PASSED_OVER_SECONDS)

    def _unusable(self, step: int, why: str) -> None:
        self._metrics.checkpoints_unusable.inc()
        self.report.update(checkpoint_message=f"the checkpoint of step {step} cannot be used: {why}")


def _settings(run: SavingConfig, described: Mapping[str, str | int], runtime: Runtime) -> Settings:
    config = run.checkpoint
    return Settings(
        retention=Retention(
            last=config.keep,
            every_steps=config.keep_every_steps,
            best=config.keep_best,
            best_metric=config.best_metric,
            best_is_highest=config.best_mode == "max",
        ),
        limit_seconds=config.timeout_seconds,
        fail_after_seconds=config.fail_after_seconds,
        metadata={
            "configuration": json.loads(run.as_json()),
            "data": dict(described),
            "processes": runtime.num_processes,
            "versions": host_check.versions(),
        },
        replica_axis=SLICE,
    )


def _local_copies(
    config: LocalCopiesConfig | None, directory: str, runtime: Runtime, metrics: Metrics
) -> LocalCopies | None:
    def count(is_whole: bool) -> None:
        if is_whole:
            metrics.local_copies.inc()
            metrics.local_copy_timestamp.set_to_current_time()
        else:
            metrics.local_copy_failures.inc()

    return LocalCopies(config.dir, run=directory, runtime=runtime, written=count) if config else None
