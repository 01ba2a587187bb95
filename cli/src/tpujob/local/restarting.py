"""Runs a job again after a failure that a retry may fix, as the operator does on a cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, describe

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0

Attempt = Callable[[int], tuple[int, dict[str, Any]]]
"""Runs the attempt with this number."""


def run_with_restarts(
    attempt: Attempt, restarts: int, *, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep
) -> tuple[int, dict[str, Any]]:
    """Runs a job with restarts; returns the exit code and the summary of the last attempt.

    Args:
        attempt: Runs the job to its end, given how often it has run before.
        restarts: How many restarts in a row are made without a newer checkpoint.
        say: Prints a line.
        pause: Waits this many seconds, longer each time, so that other machines can come back.
    """
    failures, committed = 0, None
    for number in itertools.count():
        exit_code, summary = attempt(number)
        if exit_code in (ExitCode.FINISHED, ExitCode.STOPPED, *FATAL):
            break
        if (newest := summary.get("committed_step")) is not None and newest != committed:
            failures, committed = 0, newest
        if failures >= restarts:
            break
        failures += 1
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        say(f"exit code {describe(exit_code)}: restart {failures} of {restarts} in {seconds:.0f} s; Ctrl-C ends it")
        try:
            pause(seconds)
        except KeyboardInterrupt:
            break
    return exit_code, summary
