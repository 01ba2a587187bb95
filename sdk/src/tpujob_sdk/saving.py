"""Checkpoints of any pytree, committed and restored by all processes together.

These are the trainer's own checkpoints: state and position in the data have one commit point, all processes write them
in the background, and any number of processes restores them by a vote, which sets damaged ones aside.
"""

import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tpujob_sdk.agreed_calls import AgreedCalls
from tpujob_sdk.lanes import Lanes
from tpujob_sdk.samples import Samples
from tpujob_trainer import data
from tpujob_trainer.session.checkpointing import Checkpointing
from tpujob_trainer.train.loop import BATCHES
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run. All processes must make the same calls."""

    def __init__(
        self, checkpointing: Checkpointing, lanes: Lanes | Samples[Any] | None, calls: AgreedCalls | None = None
    ) -> None:
        """Nothing is read or written yet.

        Args:
            checkpointing: The saver and its report.
            lanes: Their position in the data is saved with every state; None: the loop reads its own data.
            calls: Compares the calls of all processes; None: they are not compared.
        """
        self._calls = calls
        self._saver = checkpointing.checkpoints
        self._lanes = lanes
        self._report = checkpointing.report
        self._stop = checkpointing.stop
        self._newest: int | None = None
        """Step of the last call of `save`; None: not called yet."""
        self._unsettled: tuple[dict[str, Any], dict[str, Any]] | None = None
        """Tree and metadata of that step, to save it again at the end; None once the loop has passed it."""
        self.problem = ""
        """Why `finish` returned False; empty: it has not."""

    @property
    def committed_step(self) -> int | None:
        """Step of the newest commit that this process knows of; None: no commit."""
        return self._saver.committed_step if self._saver else None

    def restore[T](self, state: T) -> tuple[int, T] | None:
        """Step and state of the newest checkpoint that all processes can read; the lanes continue from there.

        Args:
            state: A pytree of arrays over all devices, with the same shapes; its values are not used.

        Returns:
            None: there is no checkpoint yet.

        Raises:
            ConfigurationError: the checkpoint is of another state, or a leaf is not an array over all devices.
        """
        if self._saver is None:
            return None
        self._meet("checkpoints.restore(…)")
        self._report.enter("restoring")
        restored = self._saver.restore(self._tree(_abstract(state), lambda lanes: lanes.abstract_state()), check=_check)
        if restored is None:
            return None
        step, tree = restored
        if self._lanes is not None:
            self._lanes.restore(tree["data"])
        self._report.update(
            step=step, restored_from=step, committed_step=step, committed_time=self._saver.committed_time
        )
        logger.info("Restored the checkpoint of step %d", step)
        return step, tree["state"]

    def save(self, step: int, state: Any) -> bool:
        """Starts a save, and returns once the state may change; False: storage is still busy, or has the step already.

        Raises:
            TrainerError: saves have failed for too long.
        """
        if self._saver is None:
            return False
        self._meet(f"checkpoints.save({step})", step)
        _abstract(state)
        position = None if self._lanes is None else self._lanes.state()
        said = {} if position is None else {BATCHES: position.digest}
        tree = self._tree(state, lambda lanes: position.of_lanes if position is not None else None)
        self._newest, self._unsettled = step, (tree, said)
        # This waits for the save before: no step is done meanwhile, and none is expected.
        with self._report.during("saving"):
            return self._saver.save(step, tree, metadata=said)

    def poll(self, step: int | None = None) -> None:
        """Checks for commits and failures; `Job.report` calls this at each step.

        Args:
            step: The step that the loop has reached. The state of an earlier step is not kept for another try.
        """
        if self._saver is None:
            return
        if step is not None and self._newest is not None and step > self._newest:
            self._unsettled = None
        self._saver.poll()

    def finish(self) -> bool:
        """Waits until the last save is committed; returns whether the step of the last call of `save` is a checkpoint.

        A save that fails is tried again until `Options.checkpoint.fail_after_seconds` or the grace period is over,
        unless its arrays were donated. True if there was nothing to save.

        Raises:
            TrainerError: saves have failed for too long.
        """
        if self._saver is None:
            return True
        self._meet("checkpoints.finish()")
        newest, saver = self._newest, self._saver
        if newest is None:
            saver.close()
            return True
        tree, said = self._unsettled or (None, {})
        if tree is not None and any(leaf.is_deleted() for leaf in jax.tree.leaves(tree)):
            tree = None
        with self._report.during("saving"):
            is_committed = saver.commit(
                newest, tree, metadata=said, seconds_left=self._stop.seconds_left, tick=self._report.tick
            )
            saver.close()
        self._unsettled = None
        if is_committed:
            return True
        committed = saver.committed_step
        why = f" ({saver.problem})" if saver.problem else ""
        self.problem = f"step {newest} was not saved{why}; the newest checkpoint is step {committed}"
        return False

    def _meet(self, call: str, step: int | None = None) -> None:
        if self._calls is not None:
            self._calls.meet(call, step)

    def _tree(self, state: Any, position: Any) -> dict[str, Any]:
        return {"state": state} | ({"data": position(self._lanes)} if self._lanes is not None else {})


def _check(step: int, tree: Any, said: Mapping[str, Any]) -> str | None:
    """Why the data position is not that of the batches that the state was trained on; None: it is."""
    if "data" not in tree:
        return None
    found = data.batches_digest(np.asarray(tree["data"]))
    return None if said.get(BATCHES) == found else f"the data position is that of batches {found}, not of the state's"


def _abstract(state: Any) -> Any:
    """The shapes and shardings of a pytree.

    Raises:
        ConfigurationError: a leaf is not an array over all devices.
    """

    def describe(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) != jax.device_count():
            raise ConfigurationError(
                f"state{jax.tree_util.keystr(path)}: is no array over all {jax.device_count()} devices; "
                "make it so with job.replicate(...), or give jax.jit its out_shardings"
            )
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)

    return jax.tree_util.tree_map_with_path(describe, state)
