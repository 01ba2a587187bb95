"""What became of each attempt, kept beside the checkpoint: readable when the pods are gone.

`attempts/<utc start>-<nonce>.json` is the report of process 0 with `exit_code`: null while the attempt runs, and for
one that was killed.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any

from etils import epath

from tpujob_trainer import atomic_files

logger = logging.getLogger(__name__)

FOLDER = "attempts"


class Attempt:
    """The file of one attempt. Only process 0 writes."""

    def __init__(
        self, directory: epath.PathLike, *, attempt_id: str, started: datetime.datetime, is_lead: bool
    ) -> None:
        """`attempt_id` ends with the nonce that makes the file's name unique."""
        name = f"{started.astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}-{attempt_id.rpartition('-')[2]}.json"
        self.path = epath.Path(directory) / FOLDER / name
        self._is_lead = is_lead

    def write(self, report: Mapping[str, Any], *, exit_code: int | None = None) -> None:
        """Replaces the file. A failure is a warning: a finished training must not end as failed for it."""
        if not self._is_lead:
            return
        text = json.dumps({**report, "exit_code": exit_code}, indent=1) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.replace_text(self.path, text)
        except OSError as error:
            logger.warning("Cannot write the attempt's report %s: %s", self.path, error)

    def write_stacks(self, process_id: int, text: str) -> None:
        """Keeps a process's stacks beside the file, as `<its name>.stacks-<process>.txt`. All processes may."""
        path = self.path.with_name(f"{self.path.stem}.stacks-{process_id}.txt")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            logger.warning("Cannot write the stacks to %s: %s", path, error)
        else:
            logger.info("The stacks of all threads are in %s", path)


def latest(directory: epath.PathLike) -> dict[str, Any] | None:
    """The report of the newest attempt, or None."""
    folder = epath.Path(directory) / FOLDER
    if not folder.exists():
        return None
    newest = max((p for p in folder.iterdir() if p.name.endswith(".json")), key=lambda p: p.name, default=None)
    if newest is None:
        return None
    values: dict[str, Any] = json.loads(newest.read_text())
    return values
