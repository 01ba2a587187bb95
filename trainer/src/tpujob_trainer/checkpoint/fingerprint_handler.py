"""The fingerprints in a checkpoint: written in the background, when the devices have computed them.

They are a separate item of Orbax's composite, so that the step is not committed before they are written.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from tpujob_trainer.checkpoint.fingerprint import ALGORITHM, InFlight

logger = logging.getLogger(__name__)

FILE = "metadata"


class Handler(ocp.AsyncCheckpointHandler):
    """Writes the fingerprints of `Save`, on process 0."""

    async def async_save(self, directory: epath.Path, args: Save) -> list[ocp.future.Future]:
        """Returns at once; the future completes when the file is written."""
        written = self._write_later(directory, args)
        return [ocp.future.CommitFutureAwaitingContractedSignals(written, name="fingerprints")]

    def save(self, directory: epath.Path, args: Save) -> None:
        """Waits for the devices, and writes the file."""
        found = args.fingerprints.wait()
        if found.differing_copies:
            logger.error("Devices of this process hold different copies of %s", found.differing_copies[0])
        if jax.process_index() == 0:
            text = json.dumps({"algorithm": ALGORITHM, "arrays": found.by_leaf})
            (directory / FILE).write_text(text)

    def restore(self, directory: epath.Path, args: Restore | None = None) -> Any:
        """The content of the file."""
        return json.loads((directory / FILE).read_text())

    async def _write_later(self, directory: epath.Path, args: Save) -> None:
        self.save(directory, args)


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.CheckpointArgs):
    """What to write."""

    fingerprints: InFlight


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.CheckpointArgs):
    """Has no arguments; Orbax requires a class for saving and one for restoring."""
