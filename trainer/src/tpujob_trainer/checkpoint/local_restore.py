"""Restores the newest local copies that are complete on every host, or on all hosts of one slice.

As with the checkpoint directory, process 0 decides from what all processes have, each process reads its own part, and
all vote before the devices exchange anything and again after the fingerprints. After a vote against the copies, the
next older ones are tried; older state is in the checkpoint directory.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpujob_trainer.checkpoint.fingerprint import Fingerprinter, unequal
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.local_file import LocalFile
from tpujob_trainer.checkpoint.one_slice import OneSlice
from tpujob_trainer.checkpoint.restore import VOTE_SECONDS, Check, Restored, Seconds
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

Copy = tuple[int, str, int | None]
"""A copy of one process: step, name of the save, newest committed step at that time."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which copies to restore."""

    step: int
    save: str
    slice: int | None
    """The slice whose processes read for all; None: every process has its own copy."""


def choose(copies: Mapping[int, Sequence[Copy]], slices: Sequence[set[int]], *, newest: int | None) -> Choice | None:
    """The newest copies to restore; None: there are none.

    Args:
        copies: Of each process that has any.
        slices: The processes of each slice, if each holds the whole state; otherwise one set of all processes.
        newest: The newest step in the checkpoint directory. Copies are used only if the checkpoint that they follow is
            still there: a user may have moved it away to go back.
    """
    if newest is None:
        return None
    having: dict[tuple[int, str], set[int]] = {}
    for process_id, of_process in copies.items():
        for step, save, committed in of_process:
            if step > newest and committed is not None and committed <= newest:
                having.setdefault((step, save), set()).add(process_id)
    for (step, save), processes in sorted(having.items(), reverse=True):
        whole = [at for at, members in enumerate(slices) if members <= processes]
        if whole:
            return Choice(step, save, None if len(whole) == len(slices) else whole[0])
    return None


def restore(
    copies: LocalCopies, abstract: Any, runtime: Runtime, *, name: str, fingerprinter: Fingerprinter,
    newest: Callable[[], int | None], one_slice: OneSlice | None, check: Check | None,
) -> Restored | None:  # fmt: skip
    """The state from local copies that are newer than the newest checkpoint; None: there are none.

    Args:
        copies: Of this process.
        abstract: Tree of `jax.ShapeDtypeStruct` with shardings.
        runtime: All processes call this and get the same step.
        name: Of this restore, never used before; the same on all processes.
        fingerprinter: Of the run.
        newest: Returns the newest step of the checkpoint directory; called on process 0.
        one_slice: For the tree; None: every process has to read its own part.
        check: Returns what is wrong with the arrays, given their metadata; called on the processes that read.
    """
    files = copies.found(abstract)
    slices = one_slice.slices if one_slice is not None else [set(range(runtime.num_processes))]

    def decide(said: Mapping[int, Any]) -> Any:
        chosen = choose({i: [tuple(copy) for copy in of] for i, of in said.items()}, slices, newest=newest())
        return dataclasses.astuple(chosen) if chosen else None

    while True:
        own = [(step, file.header.save, file.header.committed) for step, file in files.items()]
        said = runtime.coordination.lead_decides_on(f"{name}/has", own or None, decide, limit_seconds=VOTE_SECONDS)
        if said is None:
            return None
        choice = Choice(*said)
        name = f"{name}/{choice.step}"
        source = one_slice.read_by(choice.slice) if one_slice is not None and choice.slice is not None else None
        is_reader = source is None or source.is_reader
        file = files[choice.step] if is_reader else None
        restored = _restore(
            copies, abstract, runtime, choice, file, name=name, fingerprinter=fingerprinter, source=source, check=check
        )
        if restored is not None:
            return restored
        files.pop(choice.step, None)


def _restore(
    copies: LocalCopies, abstract: Any, runtime: Runtime, choice: Choice, file: LocalFile | None, *, name: str,
    fingerprinter: Fingerprinter, source: OneSlice | None, check: Check | None,
) -> Restored | None:  # fmt: skip
    """The state from the chosen copies; None: a process voted against them. `file` is None if others read."""
    began = time.monotonic()
    tree, problem = None, None
    if file is not None:
        tree, problem = _read(copies, file, abstract if source is None else source.abstract())
    if _is_refused(runtime, choice, f"{name}/read", problem):
        return None
    if source is not None:
        tree = source.broadcast_to_slices(tree)
    read_seconds, began = time.monotonic() - began, time.monotonic()
    problem = _wrong(file, tree, fingerprinter, check)
    if _is_refused(runtime, choice, f"{name}/verify", problem):
        return None
    where = "the hosts" if choice.slice is None else f"the hosts of slice {choice.slice}"
    logger.info("Step %d is restored from the copies on %s", choice.step, where)
    return Restored(choice.step, tree, {}, Seconds(read_seconds, time.monotonic() - began))


def _read(copies: LocalCopies, file: LocalFile, abstract: Any) -> tuple[Any, str | None]:
    try:
        return copies.read(file, abstract), None
    except (OSError, ValueError) as error:
        return None, errors.brief(error)


def _wrong(file: LocalFile | None, tree: Any, fingerprinter: Fingerprinter, check: Check | None) -> str | None:
    # All processes compute this, whatever they have read: it is a collective computation.
    found = fingerprinter(tree)
    if found.differing_copies:
        return f"{found.differing_copies[0]}: its copies differ"
    if file is None:
        return None
    if wrong := unequal(dict(file.header.fingerprints), found.by_leaf):
        return f"{wrong[0]}: the fingerprint is not that of what was saved"
    return check(file.header.step, tree, file.header.metadata) if check is not None else None


def _is_refused(runtime: Runtime, choice: Choice, name: str, problem: str | None) -> bool:
    against = runtime.coordination.objections(name, problem, limit_seconds=VOTE_SECONDS)
    if against:
        said = "; ".join(f"process {i}: {against[i]}" for i in sorted(against))
        logger.warning("The local copies of step %d cannot be used: %s", choice.step, said)
    return bool(against)
