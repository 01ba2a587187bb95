"""The checkpoints of a session, and what is told about them in report, metrics and log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from tpujob_trainer.checkpoint import Checkpoints, Listener
from tpujob_trainer.checkpoint_retention import Retention
from tpujob_trainer.checkpoint_steps import Commit
from tpujob_trainer.config_resolved import ResolvedConfig
from tpujob_trainer.session import Session

logger = logging.getLogger(__name__)


class Saves:
    """The checkpoints of the session, and what becomes of them in report, metrics and log."""

    def __init__(self, session: Session, run: ResolvedConfig, described: Mapping[str, str | int]) -> None:
        self.seconds = 0.0
        """What the last save took until its commit; 0 while none is measured."""
        self.checkpoints: Checkpoints | None = None
        self._session = session
        if session.directory:
            metrics = session.metrics
            self.checkpoints = Checkpoints(
                session.directory,
                retention=Retention(last=run.checkpoint.keep),
                runtime=session.runtime,
                metadata={
                    "configuration": json.loads(run.as_json()),
                    "data": dict(described),
                    "processes": session.runtime.num_processes,
                },
                listener=Listener(
                    saved=lambda step, seconds: metrics.checkpoint_blocking_seconds.observe(seconds),
                    committed=self._committed,
                    failed=lambda step, why: metrics.checkpoint_failures.inc(),
                ),
            )

    def _committed(self, commit: Commit, seconds: float) -> None:
        self.seconds = seconds
        self._session.metrics.checkpoint_commit_seconds.observe(seconds)
        self._session.report.update(committed_step=commit.step, committed_time=commit.time)
        if self._session.runtime.is_lead:
            logger.info("Committed the checkpoint of step %d after %.1f s", commit.step, seconds)
