"""Checkpoints of a run: one commit point for model, optimizer, step and data state.

Saved asynchronously by all processes.

- Every process calls everything here at the same steps; Orbax writes, and process 0 commits by a marker file.
- Barriers go through the coordination service with a limit, never through the devices.
- A save is watched by a thread, since a failed one is silent otherwise. It is counted, and the next save tries again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import absl.flags
import orbax.checkpoint as ocp
from etils import epath

from tpujob_trainer import checkpoint_restore, checkpoint_steps, errors, ownership
from tpujob_trainer.checkpoint_steps import Commit
from tpujob_trainer.startup import Runtime

logger = logging.getLogger(__name__)

COMMIT_SECONDS = 300
"""Limit of Orbax's for writing and committing in the background."""
WAIT_SECONDS = COMMIT_SECONDS * 2.0
"""How long the next save waits for the one before."""
MAX_FAILURES_IN_A_ROW = 3


@dataclasses.dataclass
class Listener:
    """Who is told about saves. Called in the thread that calls `save` and `poll`."""

    saved: Callable[[int, float], None] = lambda step, blocking_seconds: None
    committed: Callable[[Commit, float], None] = lambda commit, seconds: None
    failed: Callable[[int, str], None] = lambda step, why: None


class Checkpoints:
    """The checkpoints of one directory. Not for several threads."""

    def __init__(
        self,
        directory: str,
        *,
        keep: int,
        runtime: Runtime,
        metadata: dict[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            directory: Claimed before, by `ownership.claim`.
            keep: How many of the newest checkpoints stay.
            runtime: This process among the others.
            metadata: JSON values kept with every checkpoint (configuration, versions).
            listener: Who is told.
        """
        self.directory = directory
        self._keep = keep
        self._runtime = runtime
        self._metadata = metadata or {}
        self._listener = listener or Listener()
        self._manager: ocp.CheckpointManager | None = None
        self._pending: _Pending | None = None
        self._last: Commit | None = None
        self._failures_in_a_row = 0

    @property
    def committed_step(self) -> int | None:
        """Step of the newest commit that this process knows of."""
        return self._last.step if self._last else None

    @property
    def committed_time(self) -> float | None:
        """When that was, in Unix seconds."""
        return self._last.time if self._last else None

    @property
    def is_saving(self) -> bool:
        """Whether a save waits for its commit. Processes may differ for a moment: never decide by it alone."""
        return self._pending is not None

    def restore(self, abstract_tree: Any) -> tuple[int, Any] | None:
        """Step and tree of the newest checkpoint that all processes can read, or None; the same step on all.

        Raises:
            ConfigurationError: the checkpoint is of another model or optimizer.
            TrainerError: there are checkpoints, and none can be read.
        """
        restored = checkpoint_restore.restore(self.directory, abstract_tree, self._runtime)
        if restored is not None:
            self._last = Commit(restored[0], checkpoint_steps.committed_at(self.directory, restored[0]))
        self._open()
        return restored

    def save(self, step: int, tree: Any) -> bool:
        """Begins to save, once the save before is over; False when the step is saved already.

        Returns as soon as the tree is copied to host memory, so that it may be donated.

        Raises:
            TrainerError: several saves in a row failed.
        """
        begun = time.monotonic()
        if not self.finish(WAIT_SECONDS) and self._pending is not None:
            raise errors.TrainerError(
                f"the checkpoint of step {self._pending.step} was not committed within {WAIT_SECONDS:g} s"
            )
        manager = self._open()
        if step in manager.all_steps():
            return False
        try:
            manager.save(
                step,
                args=ocp.args.Composite(**{checkpoint_steps.STATE: ocp.args.StandardSave(tree)}),
                custom_metadata=self._metadata,
                force=True,
            )
        except (OSError, ValueError) as error:
            raise ownership.unusable(self.directory, error) from error
        self._listener.saved(step, time.monotonic() - begun)
        self._pending = _Pending(manager, self.directory, step, begun, writes_hint=self._runtime.is_lead)
        return True

    def poll(self) -> None:
        """Notices a commit or a failure, without waiting. Call it once a step.

        Raises:
            TrainerError: several saves in a row failed.
        """
        if self._pending is not None and self._pending.is_over:
            self._settle(self._pending)

    def finish(self, limit_seconds: float) -> bool:
        """Waits for the save that is under way; whether none is left and the last one was committed.

        Raises:
            TrainerError: several saves in a row failed.
        """
        if self._pending is None:
            return True
        if not self._pending.wait(limit_seconds):
            return False
        return self._settle(self._pending)

    def close(self) -> None:
        """Ends the background work; call `finish` before."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _settle(self, pending: _Pending) -> bool:
        self._pending = None
        if pending.commit is not None:
            self._failures_in_a_row = 0
            self._last = pending.commit
            self._listener.committed(pending.commit, pending.seconds)
            return True
        # The manager raises a failure once in each thread; hear it here, or the next save would raise it again.
        with contextlib.suppress(Exception):
            self._open().wait_until_finished()
        self._failures_in_a_row += 1
        self._listener.failed(pending.step, pending.problem)
        logger.error("The checkpoint of step %d failed: %s", pending.step, pending.problem)
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            raise errors.TrainerError(
                f"spec.checkpointDir: {self._failures_in_a_row} saves in a row to {self.directory} failed, "
                f"the last one: {pending.problem}"
            )
        return False

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            _use_coordination_service_for_barriers()
            # Orbax tells forty lines about each save in each process, and fsspec one for each file of a bucket.
            for talkative in ("absl", "fsspec"):
                logging.getLogger(talkative).setLevel(logging.WARNING)
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self._keep,
                cleanup_tmp_directories=True,
                # The loop decides when to save; Orbax's default policies (every step, preemption) stay out of it.
                save_decision_policy=ocp.checkpoint_managers.SpecificStepsPolicy(steps=()),
                async_options=ocp.AsyncOptions(timeout_secs=COMMIT_SECONDS),
            )
            root = epath.Path(self.directory) / checkpoint_steps.STEPS
            try:
                self._manager = ocp.CheckpointManager(root, options=options, item_names=(checkpoint_steps.STATE,))
            except OSError as error:
                raise ownership.unusable(self.directory, error) from error
        return self._manager


class _Pending:
    """A save on its way to its commit, watched by a thread."""

    def __init__(
        self, manager: ocp.CheckpointManager, directory: str, step: int, begun: float, *, writes_hint: bool
    ) -> None:
        self.step = step
        self.commit: Commit | None = None
        self.problem = ""
        self.seconds = 0.0
        self._manager = manager
        self._directory = directory
        self._begun = begun
        self._writes_hint = writes_hint
        self._over = threading.Event()
        threading.Thread(target=self._watch, name=f"commit-{step}", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait(self, limit_seconds: float) -> bool:
        return self._over.wait(limit_seconds)

    def _watch(self) -> None:
        try:
            self._manager.wait_until_finished()
            if not checkpoint_steps.is_committed(self._directory, self.step):
                raise errors.TrainerError("it was written, and its commit marker is not there")  # noqa: TRY301
            commit = Commit(self.step, time.time())
            if self._writes_hint:
                checkpoint_steps.write_latest(self._directory, commit)
            self.commit = commit
        except Exception as error:  # noqa: BLE001 - told to the loop, whatever it is
            self.problem = errors.brief(error)
        finally:
            self.seconds = time.monotonic() - self._begun
            self._over.set()


def _use_coordination_service_for_barriers() -> None:
    """Orbax's default barriers are device collectives without a limit; this flag is its only switch for that."""
    flags = absl.flags.FLAGS
    if not flags.is_parsed():
        flags.mark_as_parsed()
    flags["experimental_orbax_use_distributed_barrier"].value = True
