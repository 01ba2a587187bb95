"""Restoring the newest checkpoint that every process can read.

Process 0 proposes, all try and vote, all walk back together.
Each process reads its own shards without waiting for any other, so that a failure in one cannot hang the rest.
"""

from __future__ import annotations

import logging
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from tpujob_trainer import checkpoint_steps, errors, ownership
from tpujob_trainer.startup import Runtime

logger = logging.getLogger(__name__)

VOTE_SECONDS = 3600.0
"""Limit for the slowest process to read its shards; one that dies is noticed earlier, by its heartbeat."""
MAX_DIFFERENCES_NAMED = 3


def restore(directory: str, abstract: Any, runtime: Runtime) -> tuple[int, Any] | None:
    """Step and tree of the newest usable checkpoint, or None when there is none at all.

    Args:
        directory: The checkpoint directory.
        abstract: Tree of `jax.ShapeDtypeStruct` with shardings, which need not be those it was saved with.
        runtime: All processes call this and get the same step.

    Raises:
        ConfigurationError: the checkpoint is of another model or optimizer.
        TrainerError: there are checkpoints, and none can be read.
    """
    talk = runtime.coordination
    steps = talk.lead_decides("restore/steps", lambda: _propose(directory, abstract), limit_seconds=VOTE_SECONDS)
    bad: dict[int, str] = {}
    for step in steps:
        tree, problem = _try(directory, step, abstract, runtime)
        votes = talk.gather(f"restore/vote/{step}", problem, limit_seconds=VOTE_SECONDS)
        against = [f"process {i}: {vote}" for i, vote in enumerate(votes) if vote is not None]
        if not against:
            talk.lead_decides("restore/aside", lambda: _set_aside(directory, bad), limit_seconds=VOTE_SECONDS)
            return step, tree
        del tree
        bad[step] = "; ".join(against)
        logger.warning("The checkpoint of step %d cannot be used: %s", step, bad[step])
    if bad:
        raise _nothing_usable(directory, bad)
    return None


def _nothing_usable(directory: str, bad: dict[int, str]) -> errors.TrainerError:
    error = errors.TrainerError(
        f"spec.checkpointDir: none of the checkpoints in {directory} can be restored ("
        + ", ".join(f"step {step}: {why}" for step, why in bad.items())
        + f"); to begin anew move {checkpoint_steps.STEPS}/ away"
    )
    error.is_shared = True
    return error


def _propose(directory: str, abstract: Any) -> list[int]:
    try:
        steps = checkpoint_steps.committed(directory)
    except OSError as error:
        raise ownership.unusable(directory, error) from error
    for step in steps:
        try:
            stored = ocp.StandardCheckpointHandler().metadata(_item(directory, step))
        except (OSError, ValueError, KeyError) as error:
            logger.warning("The checkpoint of step %d has unreadable metadata: %s", step, errors.brief(error))
            continue
        if found := differences(abstract, stored.tree):
            raise errors.ConfigurationError(
                f"spec.trainer: the checkpoint of step {step} in {directory} is of another model or optimizer "
                f"({'; '.join(found)}); give the configuration it was made with, or another spec.checkpointDir"
            )
        break
    return steps


def differences(abstract: Any, stored: Any) -> list[str]:
    """The first few leaves by which two trees differ in name or shape, in words; empty when there is none."""
    wanted, found = _shapes(abstract), _shapes(stored)
    lines = []
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            lines.append(f"{name} is not in it")
        elif name not in wanted:
            lines.append(f"{name} is only in it")
        elif wanted[name] != found[name]:
            lines.append(f"{name} has shape {found[name]} in it, {wanted[name]} is configured")
    rest = len(lines) - MAX_DIFFERENCES_NAMED
    return lines[:MAX_DIFFERENCES_NAMED] + ([f"and {rest} more"] if rest > 0 else [])


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"/".join(_part(key) for key in path): tuple(leaf.shape) for path, leaf in leaves}


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _try(directory: str, step: int, abstract: Any, runtime: Runtime) -> tuple[Any, str | None]:
    path = _item(directory, step)
    try:
        tree = _checkpointer(runtime.process_id).restore(path, args=ocp.args.StandardRestore(abstract))
        return jax.block_until_ready(tree), None
    except Exception as error:  # whatever a damaged file makes a library raise is a vote against it
        logger.debug("Restoring step %d failed", step, exc_info=True)
        return None, errors.brief(error)


def _item(directory: str, step: int) -> epath.Path:
    return checkpoint_steps.folder(directory, step) / checkpoint_steps.STATE


def _checkpointer(process_id: int) -> ocp.Checkpointer:
    """Reads in this process alone: in Orbax's own barrier a failed process would leave the others waiting."""
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process_id, active_processes={process_id}, barrier_sync_key_prefix=f"restore{process_id}"
    )
    return ocp.Checkpointer(ocp.StandardCheckpointHandler(multiprocessing_options=alone), multiprocessing_options=alone)


def _set_aside(directory: str, bad: dict[int, str]) -> None:
    for step, reason in bad.items():
        where = checkpoint_steps.set_aside(directory, step, reason)
        logger.warning("Step %d no longer counts as a checkpoint; its files are in %s", step, epath.Path(where))
