"""Prints one JSON object about a data set.

    python -m tpujob_trainer.data.inspection '{"data": {"path": "a.parquet"}, "batchSize": 8, "sequenceLength": 512}'

`tpujob data inspect` runs it and formats its output as text. Needs no devices.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_contract.storage_address import redacted_values
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.inspection.facts import REACH_SECONDS, inspect
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.values import programs
from tpujob_trainer.values.from_mapping import parse
from tpujob_trainer.values.programs import answer, log_to_stderr


def main() -> int:
    """Answers the request in the first argument; returns the exit code."""
    log_to_stderr(logging.ERROR)
    asked = json.loads(sys.argv[1])
    # A user waits at a terminal: storage that cannot be reached is reported soon.
    RETRYING.limit_seconds = REACH_SECONDS
    return answer(lambda: redacted_values(_inspected(asked)))


def _inspected(asked: Mapping[str, Any]) -> dict[str, Any]:
    return inspect(
        parse(DataConfig, asked["data"], "spec.trainer.data"),
        batch_size=asked["batchSize"],
        sequence_length=asked["sequenceLength"],
        seed=asked.get("seed", 0),
        examples=asked.get("examples", 3),
        processes=asked.get("processes", 1),
    )


if __name__ == "__main__":
    programs.end(main())
