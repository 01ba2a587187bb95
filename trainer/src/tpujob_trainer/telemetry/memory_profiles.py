"""Profiles of the devices' memory at intervals between two steps; each process keeps its newest ones.

A thread writes them: the loop never waits for storage, and a failure never ends the run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import jax

from tpujob_contract.profiling import FOLDER
from tpujob_trainer import errors
from tpujob_trainer.storage import Bucket, open_bucket

logger = logging.getLogger(__name__)

MEMORY_FOLDER = f"{FOLDER}/memory-by-step"
CLOSING_SECONDS = 10.0
"""Time for a profile that is being written when the process ends."""


class MemoryProfiles:
    """Writes profiles for pprof; a hook of the loop."""

    def __init__(self, directory: str, *, process_id: int, every_steps: int, keep: int) -> None:
        """Nothing is written yet.

        Args:
            directory: The checkpoint directory, with a folder for each process.
            process_id: Names the folder of this process.
            every_steps: Steps between two profiles; there is also one after the last step.
            keep: Number of newest profiles that are kept.
        """
        self.every_steps: int | None = every_steps
        self._directory = directory
        self._folder = f"{MEMORY_FOLDER}/process-{process_id}"
        self._keep = keep
        self._bucket: Bucket | None = None
        self._writing: threading.Thread | None = None

    def run(self, step: int, state: Any, get_flags: Callable[[], Any]) -> None:
        """Takes a profile after `step` steps; skipped while the previous one is being written."""
        if self._writing and self._writing.is_alive():
            logger.warning("Memory profile after step %d: left out, the one before is still being written", step)
            return
        try:
            profile = jax.profiler.device_memory_profile()
        except RuntimeError as error:
            logger.warning("Memory profile after step %d: not taken: %s", step, error)
            return
        self._writing = threading.Thread(target=self._write, args=(step, profile), name="memory-profile", daemon=True)
        self._writing.start()

    def close(self) -> None:
        """Waits for a profile that is being written, for `CLOSING_SECONDS` at most."""
        if self._writing:
            self._writing.join(CLOSING_SECONDS)

    def _write(self, step: int, profile: bytes) -> None:
        try:
            self._bucket = self._bucket or open_bucket(self._directory)
            # Enough digits that names sort as steps do.
            self._bucket.write(f"{self._folder}/{step:012}.pb.gz", profile)
            for name in self._bucket.names(f"{self._folder}/")[: -self._keep]:
                self._bucket.delete(name)
        except Exception as error:  # noqa: BLE001 - libraries of storage have errors of their own; training goes on
            logger.warning("Memory profile after step %d: not written: %s", step, errors.brief(error))
