"""The checkpoints of a session, and what is told about them in report, metrics and log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.checkpoint.manager import Checkpoints, Listener
from tpujob_trainer.checkpoint.retention import Retention
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.distributed import versions
from tpujob_trainer.tasks.session import Session
from tpujob_trainer.train.save_schedule import SaveClock

logger = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 60.0
"""After a save that failed."""
PASSED_OVER_SECONDS = 10.0
"""After one that was not begun, since storage was busy with the one before."""


class Saves:
    """The checkpoints of the session, and what becomes of them in report, metrics and log."""

    def __init__(self, session: Session, run: ResolvedConfig, described: Mapping[str, str | int]) -> None:
        self.checkpoints: Checkpoints | None = None
        self.clock = SaveClock(run.checkpoint, decides=session.runtime.is_lead and session.directory is not None)
        """Process 0's, which asks for saves."""
        self._session = session
        if session.directory:
            metrics = session.metrics
            metrics.checkpoint_interval_seconds.set(run.checkpoint.every_seconds)
            self.checkpoints = Checkpoints(
                session.directory,
                retention=Retention(
                    last=run.checkpoint.keep,
                    every_steps=run.checkpoint.keep_every_steps,
                    best=run.checkpoint.keep_best,
                    best_metric=run.checkpoint.best_metric,
                ),
                runtime=session.runtime,
                limit_seconds=run.checkpoint.timeout_seconds,
                fail_after_seconds=run.checkpoint.fail_after_seconds,
                metadata={
                    "configuration": json.loads(run.as_json()),
                    "data": dict(described),
                    "processes": session.runtime.num_processes,
                    "versions": versions.versions(),
                },
                listener=Listener(
                    saved=lambda step, seconds: metrics.checkpoint_blocking_seconds.observe(seconds),
                    committed=self._committed,
                    failed=self._failed,
                    passed_over=self._passed_over,
                    unusable=self._unusable,
                ),
                verify_claim=session.claim.verify if session.claim else lambda: None,
                confirm_claim=session.claim.confirm if session.claim else lambda: None,
            )

    @property
    def seconds(self) -> float:
        """What a save takes, as far as is known; 0 while none is measured."""
        return self.checkpoints.save_seconds if self.checkpoints else 0.0

    def _committed(self, commit: Commit, seconds: float) -> None:
        self._tell_measured()
        self._session.metrics.checkpoint_commit_seconds.observe(seconds)
        self._session.report.update(
            committed_step=commit.step,
            committed_time=commit.time,
            checkpoint_failing_since=None,
            checkpoint_message=None,
        )
        if self._session.runtime.is_lead:
            logger.info("Committed the checkpoint of step %d after %.1f s", commit.step, seconds)

    def _tell_measured(self) -> None:
        """States are evaluated after they are saved: what was found then is kept with the checkpoint of that step."""
        assert self.checkpoints is not None
        facts = self._session.report.snapshot()
        step, loss = facts.get("evaluation_step"), facts.get("evaluation_loss")
        if step is not None and loss is not None:
            self.checkpoints.measured(step, {"evaluation_loss": loss})

    def _failed(self, step: int, why: str) -> None:
        assert self.checkpoints is not None
        self._session.metrics.checkpoint_failures.inc()
        self._session.report.update(
            checkpoint_failing_since=self.checkpoints.failing_since,
            checkpoint_message=f"the checkpoint of step {step} failed: {why}",
        )
        self.clock.try_again(in_seconds=TRY_AGAIN_SECONDS)

    def _passed_over(self, step: int, why: str) -> None:
        self._session.metrics.checkpoints_passed_over.inc()
        self.clock.try_again(in_seconds=PASSED_OVER_SECONDS)

    def _unusable(self, step: int, why: str) -> None:
        self._session.metrics.checkpoints_unusable.inc()
        self._session.report.update(checkpoint_message=f"the checkpoint of step {step} cannot be used: {why}")
