"""The end of a save whose folder could not be made.

Orbax' threads wait 300 s for the folder of a step, and a Python program does not end before its threads. Canceled, they
go on waiting until they are woken, which needs names of `orbax.checkpoint._src`: Orbax exports none for it.
"""

from __future__ import annotations

import threading
import warnings

import orbax.checkpoint as ocp
from orbax.checkpoint._src.futures import future, synchronization

_NEVER_AWAITED = r"coroutine '(_create_paths|cancellable|_\w*serialize_\w+.*|\w*Handler\._\w+)' was never awaited"


class Cancellation:
    """Ends one save without writing. For a process on its own: the threads of others would be woken, too, and write."""

    def __init__(self) -> None:
        """Of a save that is about to begin."""
        self.cause: Exception | None = None
        """Why the folder could not be made, once the save was canceled."""
        self._is_begun = threading.Event()
        self._operation = ""

    def begun(self) -> None:
        """Called by the thread that has begun the save, when all its threads are there."""
        self._operation = synchronization.OperationIdGenerator.get_current_operation_id()
        self._is_begun.set()

    def cancel(self, checkpointer: ocp.AsyncCheckpointer, cause: Exception) -> None:
        """Cancels the save, waking its threads; waits until it has begun."""
        self.cause = cause
        self._is_begun.wait()
        warnings.filterwarnings("ignore", _NEVER_AWAITED, RuntimeWarning)
        checkpointer.cancel()
        awaited = synchronization.HandlerAwaitableSignal
        future.set_signals(
            [awaited.STEP_DIRECTORY_CREATION, awaited.ITEM_DIRECTORY_CREATION], operation_id=self._operation
        )
