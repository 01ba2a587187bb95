"""The end of a save whose folder could not be made.

Orbax' threads wait 300 s for the folder of a step, and a Python program does not end before its threads. Canceled, they
go on waiting until they are woken, which needs names of `orbax.checkpoint._src`: Orbax exports none for it.
"""

from __future__ import annotations

import warnings

import orbax.checkpoint as ocp
from orbax.checkpoint._src.futures import future, synchronization

_NEVER_AWAITED = r"coroutine '(_create_paths|cancellable|_\w*serialize_\w+.*|\w*Handler\._\w+)' was never awaited"


def operation() -> str:
    """Orbax's name of the save that was begun last, in the thread that begins them."""
    return synchronization.OperationIdGenerator.get_current_operation_id()


def cancel(checkpointer: ocp.AsyncCheckpointer, operation: str) -> None:
    """Cancels a save that has written nothing, and wakes its threads, which then end without writing."""
    warnings.filterwarnings("ignore", _NEVER_AWAITED, RuntimeWarning)
    checkpointer.cancel()
    awaited = synchronization.HandlerAwaitableSignal
    future.set_signals([awaited.STEP_DIRECTORY_CREATION, awaited.ITEM_DIRECTORY_CREATION], operation_id=operation)
