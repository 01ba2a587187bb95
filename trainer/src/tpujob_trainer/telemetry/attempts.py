"""The report of each attempt, stored in the checkpoint directory, where it outlives the pods.

`attempts/<utc start>-<nonce>.json` is the report of process 0 with `exit_code`, which is null while the attempt runs,
and if it was killed.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any

from tpujob_contract.reports import report as wire
from tpujob_trainer.storage import open_bucket

logger = logging.getLogger(__name__)


class Attempt:
    """The file of an attempt. Only process 0 writes it."""

    def __init__(self, directory: str, *, attempt_id: str, started: datetime.datetime, is_lead: bool) -> None:
        """`attempt_id` ends with the nonce that makes the file's name unique."""
        self._bucket = open_bucket(directory)
        self._name = wire.attempt_name(started, attempt_id)
        self._is_lead = is_lead

    def write(self, report: Mapping[str, Any], *, exit_code: int | None = None) -> None:
        """Replaces the file. An error is only a warning: it must not make a finished training fail."""
        if not self._is_lead:
            return
        text = json.dumps({**report, "exit_code": exit_code}, indent=1) + "\n"
        try:
            self._bucket.write(self._name, text)
        except OSError as error:
            logger.warning("Cannot write the attempt's report: %s", error)

    def write_stacks(self, process_id: int, text: str) -> None:
        """Writes the stacks of a process next to the file, as `<its name>.stacks-<process>.txt`; for all processes."""
        name = wire.stacks_name(self._name, process_id)
        try:
            self._bucket.write(name, text)
        except OSError as error:
            logger.warning("Cannot write the stacks: %s", error)
        else:
            logger.info("The stacks of all threads are in %s/%s", self._bucket.url, name)
