"""The record of rollbacks to a checkpoint after a non-finite loss, stored in the checkpoint directory.

Process 0 writes `nonfinite.json` before anything is undone: if the attempt dies meanwhile, the next one skips the same
batches and does not roll back again.
"""

import dataclasses
import json
import logging
import time
from typing import Any

from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.train.nonfinite import NonFiniteError, spelled
from tpujob_trainer.values.json_object import damaged, kept_object

logger = logging.getLogger(__name__)

FILE = "nonfinite.json"
LIMIT_SECONDS = 120.0
ADVICE = "lower spec.trainer.optimizer.learningRate or clipNorm, or look at the data of these steps"


@dataclasses.dataclass(frozen=True)
class Rollback:
    """A rollback of a run."""

    steps: tuple[int, ...]
    """The steps that were not finite."""
    batches: tuple[int, ...]
    """The batches that are skipped from then on, counted from 1 since the beginning of the run."""
    attempt: str
    time: float


class Rollbacks:
    """The rollbacks of a run in all its attempts, the same on all processes."""

    def __init__(self, directory: str | None, coordination: Coordination) -> None:
        """Reads the record; without a directory there is none, and nothing to go back to."""
        self._directory = directory
        self._coordination = coordination
        found = coordination.lead_decides("rollbacks", self._read, limit_seconds=LIMIT_SECONDS)
        self._made = [
            Rollback(tuple(one["steps"]), tuple(one["batches"]), one["attempt"], one["time"]) for one in found
        ]

    @property
    def left_out(self) -> frozenset[int]:
        """The batches that no step is trained on."""
        return frozenset(batch for one in self._made for batch in one.batches)

    @property
    def count(self) -> int:
        """Number of rollbacks."""
        return len(self._made)

    def remember(self, error: NonFiniteError, batches: list[int], *, allowed: int, attempt: str) -> None:
        """Records a rollback.

        Raises:
            NonFiniteError: no more rollbacks are allowed, or there is no checkpoint directory.
        """
        if self._directory is None:
            raise NonFiniteError(
                f"{error}; without spec.checkpointDir there is nothing to go back to. {ADVICE}", error.steps
            )
        if self.count >= allowed:
            before = f", {self._made[-1].attempt} at {spelled(self._made[-1].steps)}" if self._made else ""
            raise NonFiniteError(
                f"{error}; the run has gone back {self.count} times already{before}, "
                f"{allowed} are allowed (spec.trainer.nonFinite.rollbacks); {ADVICE}",
                error.steps,
            )
        self._made.append(Rollback(error.steps, tuple(batches), attempt, time.time()))
        name = f"rollbacks/{self.count}"
        self._coordination.lead_decides(name, self._write, limit_seconds=LIMIT_SECONDS)

    def _read(self) -> list[dict[str, Any]]:
        if self._directory is None:
            return []
        try:
            stored = open_bucket(self._directory).look(FILE)
        except OSError as error:
            raise unusable(self._directory, error) from error
        if stored is None:
            return []
        where, remedy = f"spec.checkpointDir: {self._directory}/{FILE}", "delete it, and rollbacks are counted anew"
        found = kept_object(stored.data, where, remedy).get("rollbacks")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise damaged(where, "no rollbacks", remedy)
        return found

    def _write(self) -> None:
        assert self._directory is not None
        text = json.dumps({"rollbacks": [dataclasses.asdict(one) for one in self._made]}, indent=1) + "\n"
        try:
            open_bucket(self._directory).write(FILE, text)
        except OSError as error:
            raise unusable(self._directory, error) from error
