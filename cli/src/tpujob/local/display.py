"""Shows the progress of a run: one live line on a terminal, plain lines in a log."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from tpujob.local.pace import Pace, clock
from tpujob.output.words import counted, magnitude

PLAIN_INTERVAL_SECONDS = 10
"""A log gets a line this often while the step advances, and one at every change of phase."""

HINT_SECONDS = 60
"""A hint on the same subject is not repeated within this time, unless the problem was gone in between."""

PHASES = {
    "": "starting",
    "starting": "starting: waiting for all processes",
    "restoring": "looking for a checkpoint",
    "compiling": "compiling",
    "extracting": "extracting",
    "saving": "saving",
    "evaluating": "evaluating",
    "sampling": "writing a sample",
    "stopping": "stopping: saving first",
}
WORKING = ("training", "extracting")
"""Phases in which there is progress to show."""
OF_UNITS = {"stopping": "stopping: giving units back"}
"""Replaces those of `PHASES` for workers that take units of a corpus: they have no step to save."""
HINTS = {"checkpoint_message": "checkpoints", "data_slow_message": "data"}
"""Fields of the report that describe a problem of the run, and the subject of each."""


def progress_line(report: Mapping[str, Any], *, now: float) -> str:
    """Step, loss, tokens seen, tokens/s and last committed checkpoint of a report, as far as they are known.

    Args:
        report: The trainer's `/report`.
        now: Unix time, for the age of the checkpoint.
    """
    if report.get("units"):
        return " · ".join(_of_units(report))
    step, steps = report.get("step"), report.get("steps")
    parts = []
    if step is not None:
        parts.append(f"step {step}/{steps}" if steps else f"step {step}")
    if report.get("loss") is not None:
        parts.append(f"loss {report['loss']:.3f}")
    if report.get("tokens_seen"):
        parts.append(f"{magnitude(report['tokens_seen'])} tokens")
    if report.get("tokens_per_second"):
        parts.append(f"{report['tokens_per_second']:,.0f} tokens/s")
    if report.get("committed_step") is not None:
        age = f" ({now - report['committed_time']:.0f} s ago)" if report.get("committed_time") else ""
        parts.append(f"checkpoint {report['committed_step']}{age}")
    return " · ".join(parts)


def phase_words(report: Mapping[str, Any], *, has_units: bool) -> str:
    """The phase of a run in words; empty for a phase without words, such as training.

    Args:
        report: The trainer's `/report`.
        has_units: Whether its task works on units of a corpus, which its first reports, while it compiles, do not show.
    """
    phase = str(report.get("phase", ""))
    return (has_units and OF_UNITS.get(phase)) or PHASES.get(phase, "")


def _of_units(report: Mapping[str, Any]) -> Iterator[str]:
    """Units, rows and rate of an extraction. Each worker counts its own rows; a single worker has all."""
    yield f"{report.get('units_done') or 0:,} of {counted(report['units'], 'unit')}"
    if report.get("rows_here"):
        is_alone = report.get("units_here") == report.get("units_done")
        yield counted(report["rows_here"], "row") + ("" if is_alone else " by process 0")
    if report.get("rows_per_second"):
        yield f"{report['rows_per_second']:,.1f} rows/s"


def ending_line(report: Mapping[str, Any]) -> str:
    """The result of a finished run, from its last report, which is empty for a custom program."""
    if report.get("units"):
        return " · ".join(["finished", *_of_units(report)])
    parts = [f"finished at step {report['step']}" if report.get("step") is not None else "finished"]
    first, last = report.get("loss_first"), report.get("loss")
    if first is not None and last is not None:
        parts.append(f"loss {first:.3f} → {last:.3f}")
    if report.get("tokens_per_second"):
        parts.append(f"{report['tokens_per_second']:,.0f} tokens/s")
    return " · ".join(parts)


class _News:
    """Lines that are not repeated at every report: that the run was resumed, and its problems."""

    def __init__(self) -> None:
        self._is_resume_said = False
        self._hinted: dict[str, float] = {}

    def lines(self, report: Mapping[str, Any], now: float) -> Iterator[str]:
        if report.get("restored_from") is not None and not self._is_resume_said:
            self._is_resume_said = True
            yield f"resumed from step {report['restored_from']}"
        for field, subject in HINTS.items():
            message = report.get(field)
            if message and now >= self._hinted.get(field, 0.0):
                self._hinted[field] = now + HINT_SECONDS
                yield f"{subject}: {message}"
            elif not message and self._hinted.pop(field, None) is not None:
                yield f"{subject}: recovered"


class PlainDisplay:
    """The output of a run for people, as lines for a log or a pipe."""

    def __init__(self, console: Console, *, has_units: bool = False) -> None:
        self._console = console
        self._has_units = has_units
        self._phase: str | None = None
        self._step: int | None = None
        self._next = 0.0
        self._news = _News()
        self._pace = Pace(time.monotonic())

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, report: Mapping[str, Any]) -> None:
        """Shows the state of the run; called often."""
        now = time.monotonic()
        self._pace.note(report, now)
        for line in self._news.lines(report, now):
            self.say(line)
        self._update(report, now)

    def close(self) -> None:
        """Restores the terminal."""

    def _update(self, report: Mapping[str, Any], now: float) -> None:
        phase = str(report.get("phase", ""))
        if phase != self._phase and (words := phase_words(report, has_units=self._has_units)):
            self.say(words)
        step = report.get("step")
        if report.get("units"):
            step = report.get("units_done")
        if phase in WORKING and step != self._step and (phase != self._phase or now >= self._next):
            self.say(" · ".join([progress_line(report, now=time.time()), times(self._pace, now)]))
            self._step = step
            self._next = now + PLAIN_INTERVAL_SECONDS
        self._phase = phase


class LiveDisplay(PlainDisplay):
    """The same as one line with a progress bar, for a terminal."""

    BAR_WIDTH = 24

    def __init__(self, console: Console, *, has_units: bool = False) -> None:
        super().__init__(console, has_units=has_units)
        # A narrow terminal keeps its bar, and loses the last parts of the line.
        bar_width = self.BAR_WIDTH if console.width >= 100 else console.width // 5
        self._room = console.width - bar_width - 2
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=bar_width),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("starting", total=None)
        self._progress.start()

    def _update(self, report: Mapping[str, Any], now: float) -> None:
        known = phase_words(report, has_units=self._has_units) if report.get("phase") != "extracting" else ""
        parts = [part for part in progress_line(report, now=time.time()).split(" · ") if part]
        parts = [*([known] if known else []), *parts[:2], times(self._pace, now), *parts[2:]]
        if spark := self._pace.sparkline():
            parts = [f"{part} {spark}" if part.startswith("loss") else part for part in parts]
        self._progress.update(
            self._task,
            description=fit(parts, self._room),
            completed=report.get("units_done" if report.get("units") else "step") or 0,
            total=report.get("units") or report.get("steps"),
        )

    def close(self) -> None:
        """Takes the bar away."""
        self._progress.stop()


def times(pace: Pace, now: float) -> str:
    """`1:20, 3:05 left`, or without the second part while it is unknown."""
    remaining = pace.remaining(now)
    left = "" if remaining is None else f", {clock(remaining)} left"
    return f"{clock(pace.elapsed(now))}{left}"


def fit(parts: Sequence[str], width: int) -> str:
    """As many of the first parts as fit into a line of this many characters."""
    line = parts[0][:width] if parts else ""
    for part in parts[1:]:
        if len(line) + len(part) + 3 > width:
            break
        line += f" · {part}"
    return line


def make_display(console: Console, *, has_units: bool) -> PlainDisplay:
    """The display for a console: live on a terminal, else plain; `has_units` as in `phase_words`."""
    return (LiveDisplay if console.is_terminal else PlainDisplay)(console, has_units=has_units)
