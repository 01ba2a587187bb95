"""Going back to a checkpoint after a loss that is not finite, and what is remembered of it beside the checkpoint.

`nonfinite.json` is written by process 0 before anything is undone: an attempt that dies meanwhile is followed by one
that leaves out the same batches, and does not go back another time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from typing import Any

from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.parsing.json_object import damaged, kept_object
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.unusable import unusable
from tpujob_trainer.train.nonfinite import NonFiniteError, spelled

logger = logging.getLogger(__name__)

FILE = "nonfinite.json"
LIMIT_SECONDS = 120.0
ADVICE = "lower spec.trainer.optimizer.learningRate or clipNorm, or look at the data of these steps"


@dataclasses.dataclass(frozen=True)
class Rollback:
    """One time that a run went back."""

    steps: tuple[int, ...]
    """Those that were not finite."""
    batches: tuple[int, ...]
    """Left out from then on; counted from 1 since the beginning of the run."""
    attempt: str
    time: float


class Rollbacks:
    """Those of a run, in all its attempts. The same on all processes."""

    def __init__(self, directory: str | None, coordination: Coordination) -> None:
        """Reads what is remembered; without a directory there is nothing to go back to."""
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
        """How often the run went back."""
        return len(self._made)

    def remember(self, error: NonFiniteError, batches: list[int], *, allowed: int, attempt: str) -> None:
        """Records one more.

        Raises:
            NonFiniteError: the run went back often enough, or cannot.
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
