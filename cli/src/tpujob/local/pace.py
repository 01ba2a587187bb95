"""The elapsed and remaining time of a run, and its losses, from the reports of one attempt. Pure."""

from collections.abc import Mapping
from typing import Any

from tpujob.output.words import sparkline

POINTS = 256


class Pace:
    """The progress and losses of the reports so far. `now` is in seconds, of any monotonic clock."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._first: tuple[float, int] | None = None
        self._latest: tuple[float, int] | None = None
        self._steps: int | None = None
        self._losses: list[float] = []

    def note(self, report: Mapping[str, Any], now: float) -> None:
        """Adds a report."""
        step, loss = report.get("units_done" if report.get("units") else "step"), report.get("loss")
        self._steps = report.get("units") or report.get("steps")
        if (
            report.get("phase") not in ("training", "extracting")
            or not step
            or (self._latest and step <= self._latest[1])
        ):
            return
        # The first step is left out: it waits for the data and for the devices.
        self._first = self._first or (now, step)
        self._latest = (now, step)
        if loss is not None:
            self._losses.append(loss)
            if len(self._losses) > POINTS:
                self._losses = self._losses[::2]

    def elapsed(self, now: float) -> float:
        """Seconds since the start."""
        return now - self._started

    def remaining(self, now: float) -> float | None:
        """Seconds to the last step at the pace so far; None: the pace is unknown, or the last step is done.

        An evaluation, a sample or an export may follow, whose time is not known.
        """
        if self._first is None or self._latest is None or self._steps is None or self._latest[1] <= self._first[1]:
            return None
        if self._latest[1] >= self._steps:
            return None
        seconds_per_step = (self._latest[0] - self._first[0]) / (self._latest[1] - self._first[1])
        return max(0.0, (self._steps - self._latest[1]) * seconds_per_step - (now - self._latest[0]))

    def sparkline(self) -> str:
        """The losses so far as one word of block characters; empty before there are two."""
        return sparkline(self._losses)


def clock(seconds: float) -> str:
    """`0:07`, `12:40`, `3:05:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
