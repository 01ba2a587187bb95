"""Compiling such that no process waits for another one on the devices."""

from __future__ import annotations

import logging
import time
from typing import Any

from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.telemetry.report import Report

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 1800.0
"""For the slowest process to compile."""


class Compiler:
    """Compiles the functions of a run, on all processes alike."""

    def __init__(self, runtime: Runtime, report: Report) -> None:
        """`report` shows the phase."""
        self._runtime = runtime
        self._report = report

    def compile(self, name: str, jitted: Any, *abstract: Any) -> Any:
        """The compiled function, once all processes have it.

        The fastest one would wait for the others in an exchange between devices otherwise, which has limits of its own
        (30 s over gloo).
        """
        self._report.enter("compiling")
        started = time.monotonic()
        compiled = jitted.lower(*abstract).compile()
        if self._runtime.is_lead:
            logger.info("Compiled the %s in %.1f s", name, time.monotonic() - started)
        self._runtime.coordination.barrier(f"compiled/{name}", limit_seconds=LIMIT_SECONDS)
        return compiled
