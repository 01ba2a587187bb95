"""The last lines of a run: its result, the cause, how to continue, and the file with its curves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.job.questions.trainer_program import Program, ask
from tpujob.local.display import ending_line
from tpujob.local.outcome import Outcome
from tpujob.local.reports import message_of, tail
from tpujob.output.errors import CommandError
from tpujob.output.words import counted, of_not_finite, sparkline
from tpujob_contract import ExitCode, storage_address
from tpujob_resource.models.phases import Phase

SHOWN_LINES = 10
"""The last lines of the log that are shown for a program that failed without a message."""


@dataclass(frozen=True)
class Closing:
    """The lines printed when all processes have ended."""

    outcome: Outcome
    report: Mapping[str, Any]
    again: str
    """The command that continues the run."""
    has_trainer: bool
    has_units: bool = False
    """Whether its task works on units of a corpus, and has no step to save."""
    curves: Sequence[str] = ()
    """Lines about the file with the curves of the run; none before its first step."""

    @property
    def cause(self) -> str:
        """Why the run failed, from the message of the process that failed first; empty unless it failed."""
        return " ".join(self._words())

    def lines(self) -> Iterator[str]:
        """All lines, in order."""
        match self.outcome.phase:
            case Phase.SUCCEEDED:
                yield from self._succeeded()
            case Phase.SUSPENDED:
                yield self._stopped()
                yield from self.curves
            case _:
                yield from self._failed()

    def _succeeded(self) -> Iterator[str]:
        if self.report.get("sample"):
            yield f"\nsample:\n{self.report['sample']}\n"
        yield self.report.get("message") or ending_line(self.report)
        if self.report.get("values_not_finite"):
            yield f"warning: {of_not_finite(self.report['values_not_finite'])}"
        if self.report.get("checkpoint"):
            yield f"checkpoint   {short_path(self.report['checkpoint'])}"
        yield from self.curves

    def _stopped(self) -> str:
        again = f"`{self.again}`"
        step = self.report.get("committed_step")
        if not self.has_trainer:
            saved = "" if step is None else f"; its last checkpoint is step {step}"
            return f"stopped: {again} starts the program again{saved}"
        if self.report.get("units"):
            done = f"{self.report.get('units_done') or 0:,} of {counted(self.report['units'], 'unit')}"
            return f"stopped: {done} done; {again} goes on with the others"
        if self.has_units:
            return f"stopped: units that are done are kept; {again} goes on with the others"
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
        yield from self.curves
        step = self.report.get("committed_step")
        if step is not None and self.outcome.exit_code not in (ExitCode.CONFIGURATION, ExitCode.NOT_FOUND):
            yield f"last committed step: {step}; `{self.again}` goes on from there"

    def _words(self) -> list[str]:
        """The message of the culprit or, if it left none, of the process that lost it."""
        for each in (self.outcome.culprit, self.outcome.witness):
            if each is not None and (words := message_of(each.process.termination_log)):
                return words
        return []


def short_path(path: str) -> str:
    """A path relative to the current folder, if it is below it."""
    try:
        here = f"{Path.cwd()}/"
    except OSError:  # a user has deleted this folder
        return path
    return path.removeprefix(here)


FILE = "report.html"
NUMBERS = "metrics.csv"


def drawn(checkpoint_dir: str, folder: Path) -> list[str]:
    """Writes `report.html` into a folder; returns the lines about it, or one that says why it is not written.

    Without metrics.csv in a local checkpoint directory, as for a custom program, there is neither file nor line.

    Args:
        checkpoint_dir: Of a run that has made steps: a path or an address.
        folder: The folder of the job's logs on this machine.
    """
    if storage_address.is_path(checkpoint_dir) and not Path(checkpoint_dir, NUMBERS).exists():
        return []
    out = folder / FILE
    try:
        (run,) = ask(Program.RUN_REPORT, {"directories": [checkpoint_dir], "out": str(out)})["runs"]
    except CommandError as error:
        return [f"report       is not written: {'; '.join(error.problems)}"]
    lines = []
    if len(run["losses"]) > 1:
        lines.append(f"loss         {run['loss_first']:.3f} → {run['loss']:.3f} {sparkline(run['losses'])}")
    numbers = f"{checkpoint_dir.rstrip('/')}/{NUMBERS}"
    return [*lines, f"report       {short_path(str(out))}, its numbers are in {short_path(numbers)}"]
