"""Restores the newest checkpoint that every process can read and whose arrays are those that were saved.

Process 0 proposes steps, all processes try and vote, and all go back to older steps together.

- Each process reads its own shards without waiting for any other, so that a failure in one cannot block the rest.
- Of several slices, which hold the same arrays, one reads; when all its processes have, its devices send to the others.
- When all processes have their arrays, all compute the fingerprints on their devices and vote on them.
- A damaged step is set aside. A step that is only out of reach (refused, overloaded, slow) ends the process instead:
  going back to an older step would lose work for nothing.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.fingerprint import ALGORITHM, Fingerprinter, leaf_names, unequal
from tpujob_trainer.checkpoint.one_slice import OneSlice
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.whole import retried_if_short
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

VOTE_SECONDS = 3600.0
"""Limit for the slowest process to read its shards; one that dies is noticed earlier, by its heartbeat."""
MAX_DIFFERENCES_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Seconds:
    """The duration of a restore, in seconds."""

    read: float = 0.0
    """To read the arrays and place them on the devices, including those of other slices."""
    verify: float = 0.0
    """To compute and compare the fingerprints; includes their compilation if that was not done before."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint on the devices."""

    step: int
    tree: Any
    unusable: dict[int, str]
    """Newer steps that were set aside, and why."""
    seconds: Seconds


@dataclasses.dataclass(frozen=True)
class _Vote:
    """The vote of one process about one step."""

    problem: str | None = None
    is_out_of_reach: bool = False
    is_refused: bool = False


Check = Callable[[int, Any, Mapping[str, Any]], str | None]
"""Takes a step, its arrays and its metadata; returns what is wrong with the arrays. None: nothing."""


def restore(
    directory: str, abstract: Any, runtime: Runtime, *, name: str, fingerprinter: Fingerprinter,
    check: Check | None = None, one_slice: OneSlice | None = None,
) -> Restored | None:  # fmt: skip
    """The newest usable checkpoint; None: there is none at all.

    Args:
        directory: The checkpoint directory.
        abstract: Tree of `jax.ShapeDtypeStruct` with shardings, which need not be those it was saved with.
        runtime: All processes call this and get the same step.
        name: Of this restore, never used before; the same on all processes.
        fingerprinter: Of the run.
        check: Called on process 0, after the arrays are verified to be those that were saved.
        one_slice: For the tree; None: every process reads its own part.

    Raises:
        ConfigurationError: the checkpoint is of another model or optimizer.
        NotFoundError: storage refuses to be read.
        TrainerError: there are checkpoints, and none can be read, or storage is out of reach.
    """
    talk = runtime.coordination
    steps = talk.lead_decides(f"{name}/steps", lambda: _propose(directory, abstract), limit_seconds=VOTE_SECONDS)
    bad: dict[int, str] = {}
    is_reader = one_slice is None or one_slice.is_reader
    part = abstract if one_slice is None else one_slice.abstract()

    def refuse(what: str, step: int, vote: _Vote) -> bool:
        """Whether a process voted against the step; records why."""
        own = None if vote.problem is None else dataclasses.asdict(vote)
        said = talk.objections(f"{name}/{what}/{step}", own, limit_seconds=VOTE_SECONDS, rank=_rank)
        against = [(i, _Vote(**said[i])) for i in sorted(said)]
        if any(vote.is_out_of_reach for _, vote in against):
            raise _out_of_reach(directory, step, against)
        if against:
            bad[step] = "; ".join(f"process {i}: {vote.problem}" for i, vote in against)
            logger.warning("The checkpoint of step %d cannot be used: %s", step, bad[step])
        return bool(against)

    for step in steps:
        began = time.monotonic()
        tree, stored, vote = _read(directory, step, part, runtime) if is_reader else (None, None, _Vote())
        if refuse("read", step, vote):
            continue
        if one_slice is not None:
            tree = one_slice.broadcast_to_slices(tree)
        read_seconds = time.monotonic() - began
        began = time.monotonic()
        # A collective computation: only now, when every process has its part.
        vote = _verify(stored, tree, fingerprinter, is_reader=is_reader)
        if vote.problem is None and runtime.is_lead:
            vote = _agrees(directory, step, tree, check)
        verify_seconds = time.monotonic() - began
        if refuse("verify", step, vote):
            del tree
            continue
        talk.lead_decides(f"{name}/aside", lambda: _set_aside(directory, bad), limit_seconds=VOTE_SECONDS)
        return Restored(step, tree, bad, Seconds(read_seconds, verify_seconds))
    if bad:
        raise _nothing_usable(directory, bad)
    return None


def _rank(vote: Mapping[str, Any]) -> tuple[bool, bool]:
    """Sorts votes that storage is out of reach first, because then nothing is set aside."""
    return not vote["is_out_of_reach"], not vote["is_refused"]


def _out_of_reach(directory: str, step: int, against: list[tuple[int, _Vote]]) -> errors.TrainerError:
    said = "; ".join(f"process {i}: {vote.problem}" for i, vote in against if vote.is_out_of_reach)
    kind = errors.NotFoundError if any(vote.is_refused for _, vote in against) else errors.TrainerError
    error = kind(
        f"spec.checkpointDir: the checkpoint of step {step} in {directory} cannot be read at present ({said}); "
        "nothing was changed there, another attempt may succeed"
    )
    error.is_shared = True
    return error


def _nothing_usable(directory: str, bad: dict[int, str]) -> errors.TrainerError:
    error = errors.TrainerError(
        f"spec.checkpointDir: none of the checkpoints in {directory} can be restored ("
        + ", ".join(f"step {step}: {why}" for step, why in bad.items())
        + f"); to begin anew move {layout.STEPS}/ away"
    )
    error.is_shared = True
    return error


def _propose(directory: str, abstract: Any) -> list[int]:
    try:
        steps = layout.committed(directory)
    except Exception as error:
        raise unusable(directory, error) from error
    differing: dict[int, list[str]] = {}
    for step in steps:
        try:
            stored = ocp.StandardCheckpointHandler().metadata(_item(directory, step))
            found = differences(abstract, stored.tree)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes a library raise
            logger.warning("The checkpoint of step %d has unreadable metadata: %s", step, errors.brief(error))
            continue
        if not found:  # if one step is of this model, the differing ones are damaged, which reading them shows
            return steps
        differing[step] = found
    for step, found in differing.items():
        raise errors.ConfigurationError(
            f"spec.trainer: the checkpoint of step {step} in {directory} is of another model or optimizer "
            f"({'; '.join(found)}); give the configuration it was made with, or {errors.ANOTHER_RUN}"
        )
    return steps


def differences(abstract: Any, stored: Any) -> list[str]:
    """The first few leaves that differ between two trees in name, shape or type, as text; empty: there is none."""
    wanted, found = _described(abstract), _described(stored)
    lines = []
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            lines.append(f"{name} is not in it")
        elif name not in wanted:
            lines.append(f"{name} is only in it")
        elif wanted[name][0] != found[name][0]:
            lines.append(f"{name} has shape {found[name][0]} in it, {wanted[name][0]} is configured")
        elif wanted[name][1] != found[name][1]:
            lines.append(f"{name} has type {found[name][1]} in it, {wanted[name][1]} is configured")
    rest = len(lines) - MAX_DIFFERENCES_NAMED
    return lines[:MAX_DIFFERENCES_NAMED] + ([f"and {rest} more"] if rest > 0 else [])


def _described(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    # Metadata of stored random keys are those of their numbers.
    leaves = [
        jax.eval_shape(jax.random.key_data, leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(tree)
    ]
    return {
        name: (tuple(leaf.shape), str(jax.dtypes.canonicalize_dtype(leaf.dtype)))
        for name, leaf in zip(leaf_names(tree), leaves, strict=True)
    }


def _read(directory: str, step: int, abstract: Any, runtime: Runtime) -> tuple[Any, dict[str, str] | None, _Vote]:
    """This process's part of the arrays, the stored fingerprints (None: of another algorithm), and its vote."""

    def read() -> tuple[Any, dict[str, str] | None]:
        algorithm, stored = layout.fingerprints_of(directory, step)
        tree = _checkpointer(runtime.process_id).restore(
            _item(directory, step), args=ocp.args.StandardRestore(abstract)
        )
        return jax.block_until_ready(tree), stored if algorithm == ALGORITHM else None

    try:
        return *retried_if_short(str(layout.folder(directory, step)), read), _Vote()
    except Exception as error:  # whatever a library raises for a damaged file is a vote against it
        logger.debug("Restoring step %d failed", step, exc_info=True)
        return None, None, _against(error)


def _verify(stored: dict[str, str] | None, tree: Any, fingerprinter: Fingerprinter, *, is_reader: bool) -> _Vote:
    # All processes compute this, whatever they have read: it is a collective computation.
    found = fingerprinter(tree)
    if stored is None and is_reader:
        logger.warning("The fingerprints are of another version of tpujob: the arrays are not verified")
    wrong = unequal(stored or found.by_leaf, found.by_leaf) or found.differing_copies
    if not wrong:
        return _Vote()
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return _Vote(f"{wrong[0]}{more}: the fingerprint is not that of what was saved")


def _agrees(directory: str, step: int, tree: Any, check: Check | None) -> _Vote:
    try:
        metadata = layout.metadata_of(directory, step)
        wrong = layout.of_another_step(step, metadata.get(layout.STEP))
        return _Vote(wrong or (check(step, tree, metadata) if check is not None else None))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        return _against(error)


def _against(error: Exception) -> _Vote:
    return _Vote(storage_errors.brief(error), storage_errors.is_out_of_reach(error), storage_errors.is_refused(error))


def _item(directory: str, step: int) -> epath.Path:
    return layout.folder(directory, step) / layout.STATE


def _checkpointer(process_id: int) -> ocp.Checkpointer:
    """A checkpointer of this process alone: in Orbax's own barrier, a failed process would keep the others waiting."""
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process_id, active_processes={process_id}, barrier_sync_key_prefix=f"restore{process_id}"
    )
    return ocp.Checkpointer(ocp.StandardCheckpointHandler(multiprocessing_options=alone), multiprocessing_options=alone)


def _set_aside(directory: str, bad: dict[int, str]) -> None:
    for step, reason in bad.items():
        where = layout.set_aside(directory, step, reason)
        logger.warning("Step %d no longer counts as a checkpoint; its files are in %s", step, epath.Path(where))
