"""Tells a person how the run is going: one live line on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

PLAIN_INTERVAL_SECONDS = 10
"""A log gets a line this often while the step advances, and one at every change of phase."""

PHASES = {
    "": "starting",
    "starting": "starting: waiting for all processes",
    "restoring": "restoring the last checkpoint",
    "compiling": "compiling",
    "saving": "saving",
    "sampling": "writing a sample",
    "stopping": "stopping: saving first",
}


def progress_line(report: Mapping[str, Any], *, now: float) -> str:
    """Step, loss, tokens/s and last committed checkpoint of a report, as far as they are known.

    Args:
        report: The trainer's `/report`.
        now: Unix time, for the age of the checkpoint.
    """
    step, steps = report.get("step"), report.get("steps")
    parts = []
    if step is not None:
        parts.append(f"step {step}/{steps}" if steps else f"step {step}")
    if report.get("loss") is not None:
        parts.append(f"loss {report['loss']:.3f}")
    if report.get("tokens_per_second"):
        parts.append(f"{report['tokens_per_second']:,.0f} tokens/s")
    if report.get("committed_step") is not None:
        age = f" ({now - report['committed_time']:.0f} s ago)" if report.get("committed_time") else ""
        parts.append(f"checkpoint {report['committed_step']}{age}")
    return " · ".join(parts)


def ending_line(report: Mapping[str, Any]) -> str:
    """What a finished run came to, from its last report."""
    parts = [f"finished at step {report.get('step')}"]
    first, last = report.get("loss_first"), report.get("loss")
    if first is not None and last is not None:
        parts.append(f"loss {first:.3f} → {last:.3f}")
    if report.get("tokens_per_second"):
        parts.append(f"{report['tokens_per_second']:,.0f} tokens/s")
    return " · ".join(parts)


class Display(Protocol):
    """Where the run is told."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def show(self, report: Mapping[str, Any]) -> None:
        """The state of the run; called often."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


class PlainDisplay:
    """Lines for a log, or for a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase: str | None = None
        self._step: int | None = None
        self._next = 0.0

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, report: Mapping[str, Any]) -> None:
        phase = str(report.get("phase", ""))
        if phase != self._phase and phase in PHASES:
            self.say(PHASES[phase])
        step = report.get("step")
        if phase == "training" and step != self._step and (phase != self._phase or time.monotonic() >= self._next):
            self.say(progress_line(report, now=time.time()))
            self._step = step
            self._next = time.monotonic() + PLAIN_INTERVAL_SECONDS
        self._phase = phase

    def close(self) -> None:
        return


class LiveDisplay:
    """One line with a bar that moves, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), console=console, transient=True
        )
        self._task: TaskID = self._progress.add_task("starting", total=None)
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def show(self, report: Mapping[str, Any]) -> None:
        phase = str(report.get("phase", ""))
        line = progress_line(report, now=time.time())
        known = PHASES.get(phase)
        description = f"{known} · {line}" if known and line else known or line or PHASES[""]
        self._progress.update(
            self._task, description=description, completed=report.get("step") or 0, total=report.get("steps")
        )

    def close(self) -> None:
        self._progress.stop()


def make_display(console: Console) -> Display:
    """The display that fits where the output goes."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
