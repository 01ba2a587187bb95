"""Settings of a run's checkpoints: which of them stay, limits, and callbacks; the deletion of the others.

Orbax's policies decide the same, but its BestN (0.12.8) keeps steps without metrics while there are `best` or fewer.
"""

import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.layout import Commit
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """The rules for keeping checkpoints; what any of them keeps is kept."""

    last: int
    """Number of newest checkpoints to keep; at least one."""
    every_steps: int | None = None
    """Steps that are multiples of this are never deleted."""
    best: int = 0
    """Number of checkpoints to keep with the best values of `best_metric`."""
    best_metric: str | None = None
    best_is_highest: bool = False
    """Whether the highest value is the best, not the lowest."""

    def surplus(self, steps: Mapping[int, Mapping[str, float]]) -> list[int]:
        """Those of the committed steps (each with its metrics) that are to be deleted, oldest first."""
        kept = set(sorted(steps)[-max(self.last, 1) :])
        if self.every_steps:
            kept.update(step for step in steps if step % self.every_steps == 0)
        if self.best and self.best_metric:
            name, sign = self.best_metric, -1 if self.best_is_highest else 1
            # Of equal values, that of the newer step is better.
            measured = sorted((sign * metrics[name], -step) for step, metrics in steps.items() if name in metrics)
            kept.update(-step for _, step in measured[: self.best])
        return sorted(steps.keys() - kept)


class Deleter:
    """Deletes checkpoints in the background, one task after the other, in the order of the calls."""

    def __init__(self, directory: str, retention: Retention, confirm_claim: Callable[[], None] = lambda: None) -> None:
        """`confirm_claim` is called before each deletion, and prevents it by raising an error."""
        self._directory = directory
        self._retention = retention
        self._confirm_claim = confirm_claim
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._metrics: dict[int, Mapping[str, float]] = {}
        threading.Thread(target=self._work, name="delete-checkpoints", daemon=True).start()

    def tidy(self) -> None:
        """Queues the deletion of the checkpoints that no rule keeps."""
        self._tasks.put(self._tidy)

    def record_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queues the recording of a step's metrics, in memory and in the checkpoint directory."""
        if self._metrics.get(step) != metrics:
            self._tasks.put(lambda: self._remember(step, dict(metrics)))

    def discard(self, step: int) -> None:
        """Queues the deletion of all files of a step, which is no checkpoint."""
        self._tasks.put(lambda: self._delete([step]))

    def wait(self, limit_seconds: float) -> bool:
        """Waits for the tasks queued so far; returns whether they ended within the limit."""
        done = threading.Event()
        self._tasks.put(done.set)
        return done.wait(limit_seconds)

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                task()
            except Exception as error:  # noqa: BLE001 - too many checkpoints are no reason to stop training
                logger.warning("Deleting checkpoints in %s failed: %s", self._directory, errors.brief(error))

    def _remember(self, step: int, metrics: dict[str, float]) -> None:
        self._metrics[step] = metrics
        layout.write_metrics(self._directory, step, metrics)

    def _tidy(self) -> None:
        steps = layout.committed(self._directory)
        for step in steps:
            if step not in self._metrics:
                self._metrics[step] = layout.metrics_of(self._directory, step)
        surplus = self._retention.surplus({step: self._metrics[step] for step in steps})
        self._delete(surplus)
        for step in surplus:
            logger.info("Deleted the checkpoint of step %d", step)

    def _delete(self, steps: Sequence[int]) -> None:
        if steps:
            self._confirm_claim()
        for step in steps:
            layout.delete(self._directory, step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings, the same on all processes of a run."""

    retention: Retention
    """Which checkpoints stay."""
    limit_seconds: float = 600.0
    """A save that is not committed by then has failed."""
    fail_after_seconds: float = 3600.0
    """While saves fail: the age of the last commit at which the run ends."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values kept with every checkpoint (configuration, versions)."""
    replica_axis: str | None = None
    """The mesh axis along which arrays are replicated: one slice reads for all. None: every process reads."""


@dataclasses.dataclass
class Listener:
    """Called in the thread that calls `Checkpoints.save` and `poll`."""

    saved: Callable[[int, float], None] = lambda step, blocking_seconds: None
    committed: Callable[[Commit, float], None] = lambda commit, seconds: None
    failed: Callable[[int, str], None] = lambda step, why: None
    passed_over: Callable[[int, str], None] = lambda step, why: None
    unusable: Callable[[int, str], None] = lambda step, why: None
