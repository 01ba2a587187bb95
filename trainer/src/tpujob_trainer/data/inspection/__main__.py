"""The program: one JSON object about a data set.

    python -m tpujob_trainer.data.inspection '{"data": {"path": "a.parquet"}, "batchSize": 8, "sequenceLength": 512}'

`tpujob data inspect` starts it and makes text of its answer. Needs no devices.
"""

from __future__ import annotations

import json
import logging
import sys

from tpujob_contract import ExitCode
from tpujob_contract.storage_address import redacted_values
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.inspection.facts import REACH_SECONDS, inspect
from tpujob_trainer.data.sources.remote import RETRYING
from tpujob_trainer.distributed.exit import programs
from tpujob_trainer.errors import TrainerError
from tpujob_trainer.errors.logs import log_to_stderr
from tpujob_trainer.parsing.from_mapping import parse


def main() -> int:
    """Inspects what the first argument says, and tells it on stdout; the exit code."""
    log_to_stderr(logging.ERROR)
    asked = json.loads(sys.argv[1])
    # Somebody waits at a terminal: what cannot be reached is told soon.
    RETRYING.limit_seconds = REACH_SECONDS
    try:
        config = parse(DataConfig, asked["data"], "spec.trainer.data")
        found = inspect(
            config,
            batch_size=asked["batchSize"],
            sequence_length=asked["sequenceLength"],
            seed=asked.get("seed", 0),
            examples=asked.get("examples", 3),
            processes=asked.get("processes", 1),
        )
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(redacted_values(found)) + "\n")
    return ExitCode.FINISHED


if __name__ == "__main__":
    programs.end(main())
