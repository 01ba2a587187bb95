"""The output of a program that the command line runs: a JSON object on stdout, or an error line on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_contract import ExitCode
from tpujob_trainer.errors import TrainerError


def answer(work: Callable[[], Mapping[str, Any]]) -> int:
    """Writes the result of `work`, or the error that it raises; returns the exit code."""
    try:
        found = work()
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found) + "\n")
    return ExitCode.FINISHED
