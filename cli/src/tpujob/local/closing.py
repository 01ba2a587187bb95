"""The last lines of a run: what came of it, why, and how to go on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.local.display import ending_line
from tpujob.local.outcome import Outcome
from tpujob.local.reports import message_of, tail
from tpujob_contract import ExitCode

SHOWN_LINES = 10
"""Of the log of a program that failed and left no message."""


@dataclass(frozen=True)
class Closing:
    """What a person is told when all processes have ended."""

    outcome: Outcome
    report: Mapping[str, Any]
    job_file: Path
    has_trainer: bool

    @property
    def cause(self) -> str:
        """Why the run failed, in the words of the process that failed first; empty unless it failed."""
        return " ".join(self._words())

    def lines(self) -> Iterator[str]:
        """All lines, in order."""
        match self.outcome.phase:
            case "Succeeded":
                yield from self._succeeded()
            case "Suspended":
                yield self._stopped()
            case _:
                yield from self._failed()

    def _succeeded(self) -> Iterator[str]:
        if self.report.get("sample"):
            yield f"\nsample:\n{self.report['sample']}\n"
        yield self.report.get("message") or ending_line(self.report)
        if self.report.get("checkpoint"):
            yield f"checkpoint   {short_path(self.report['checkpoint'])}"

    def _stopped(self) -> str:
        again = f"`tpujob run {self.job_file}`"
        step = self.report.get("committed_step")
        if not self.has_trainer:
            saved = "what it goes on from is its own to say" if step is None else f"its last checkpoint is step {step}"
            return f"stopped: {again} starts the program again; {saved}"
        if step is None:
            return f"stopped: nothing was saved yet; {again} starts from the beginning"
        return f"stopped: saved at step {step}; {again} goes on from there"

    def _failed(self) -> Iterator[str]:
        culprit = self.outcome.culprit
        if culprit is None:
            return
        yield f"failed: {self.outcome.reason}"
        for line in self._words() or tail(culprit.process.log, SHOWN_LINES):
            yield f"  {line}"
        yield f"its log: {short_path(str(culprit.process.log))}"
        step = self.report.get("committed_step")
        if step is not None and self.outcome.exit_code not in (ExitCode.CONFIGURATION, ExitCode.NOT_FOUND):
            yield f"last committed step: {step}; `tpujob run {self.job_file}` goes on from there"

    def _words(self) -> list[str]:
        culprit = self.outcome.culprit
        return message_of(culprit.process.termination_log) if culprit else []


def short_path(path: str) -> str:
    """A path as a person in this folder would type it."""
    here = os.getcwd() + "/"  # noqa: PTH109 - compared as text
    return path.removeprefix(here)
