"""The folder of a step until its commit, in a directory that another run may have taken over meanwhile.

Orbax creates the folder, and later marks it as a checkpoint, in threads of process 0; all other writes of a save wait
for the folder. The claim is confirmed before both, in these threads, so that the training loop does not wait for
storage, and a run that has lost the directory neither writes into a step of its successor nor commits one.

Orbax's threads wait 300 s for a folder that could not be created, and a Python program does not end before its threads.
If canceled, they still wait until they are woken, which needs names of `orbax.checkpoint._src`: Orbax exports none.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint._src.futures import future, synchronization

_NEVER_AWAITED = r"coroutine '(_create_paths|cancellable|_\w*serialize_\w+.*|\w*Handler\._\w+)' was never awaited"


def claimed_path(
    directory: str, confirm: Callable[[], None], give_up: Callable[[Exception], None] = lambda error: None
) -> type[Any]:
    """Orbax's `TemporaryPath` for steps of a directory, which calls `confirm` before it creates or commits a folder.

    Args:
        directory: The checkpoint directory.
        confirm: Raises an error when another run has taken the directory over. Called in a thread, on process 0.
        give_up: Called, in a thread, with the reason why the folder could not be created, before Orbax gets it.
    """
    base = ocp.path.atomicity_defaults.get_default_temporary_path_class(epath.Path(directory))

    class ClaimedPath(base):  # type: ignore[misc, valid-type]
        async def create(self) -> epath.Path:
            try:
                await asyncio.to_thread(confirm)
                return await super().create()
            except Exception as error:
                await asyncio.to_thread(give_up, error)
                raise

        async def finalize(self) -> None:
            await asyncio.to_thread(confirm)
            await super().finalize()

    return ClaimedPath


class Cancellation:
    """Ends one save without writing. Only for a single process: threads of others would be woken, too, and write."""

    def __init__(self) -> None:
        """For a save that is about to start."""
        self.cause: Exception | None = None
        """Why the folder could not be created, once the save was canceled."""
        self._is_begun = threading.Event()
        self._operation = ""

    def begun(self) -> None:
        """Called by the thread that has started the save, when all its threads exist."""
        self._operation = synchronization.OperationIdGenerator.get_current_operation_id()
        self._is_begun.set()

    def failed(self) -> None:
        """Called instead if the save could not be started: its threads cannot be canceled, so none is woken."""
        self._is_begun.set()

    def cancel(self, checkpointer: ocp.AsyncCheckpointer, cause: Exception) -> None:
        """Cancels the save, waking its threads; waits until it has started."""
        self.cause = cause
        self._is_begun.wait()
        if not self._operation:
            return
        warnings.filterwarnings("ignore", _NEVER_AWAITED, RuntimeWarning)
        checkpointer.cancel()
        awaited = synchronization.HandlerAwaitableSignal
        future.set_signals(
            [awaited.STEP_DIRECTORY_CREATION, awaited.ITEM_DIRECTORY_CREATION], operation_id=self._operation
        )
