"""The folder of a step on its way to its commit, in a directory that another run may have taken over meanwhile.

Orbax makes the folder, and later marks it as a checkpoint, in threads of process 0; all other writes of a save wait
until the folder is there. The claim is confirmed before both, so that the loop waits for no answer of the storage, and
a run that has lost the directory neither writes into a step of its successor nor commits one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orbax.checkpoint as ocp
from etils import epath


def claimed_path(
    directory: str, confirm: Callable[[], None], give_up: Callable[[Exception], None] = lambda error: None
) -> type[Any]:
    """Orbax's `TemporaryPath` for steps of a directory, which calls `confirm` before it makes or commits a folder.

    Args:
        directory: The checkpoint directory.
        confirm: Raises an error when another run has taken the directory over. Called in a thread, on process 0.
        give_up: Told, in a thread, why the folder could not be made, before Orbax is.
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
