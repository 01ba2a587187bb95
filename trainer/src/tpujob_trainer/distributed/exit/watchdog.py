"""Notices that a run has stopped making progress, and ends it with the stacks of all threads.

- Progress is a change of the report: a step, or a new phase. No caller has to feed the watchdog.
- Steps are short and similar, so their limit is derived from their usual duration; restoring and compiling are not,
  so they have a separate limit, which also applies at the start.
- It runs in a thread and does not access the devices: it works even if the main thread hangs.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Annotated, Protocol

from tpujob_contract.reports.progress_state import ProgressState
from tpujob_trainer.distributed.exit import stack_traces
from tpujob_trainer.parsing.from_mapping import Range

LEAST_STEP_SECONDS = 300.0
"""A stalled file system or a slow bucket often comes back within minutes."""
USUAL_STEPS = 20.0
"""A step that takes this many times the usual duration has stalled."""
REMEMBERED_STEPS = 31
LOOK_SECONDS = 1.0
TRAINING = "training"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchdogConfig:
    """When a run that makes no progress ends, with exit code 79 on all processes, and a restart that is charged.

    Before that, each process writes the stacks of its threads to the log and to the checkpoint directory.
    """

    step_seconds: Annotated[int, Range(5, 604800)] | None = None
    """Longest time without a step, while training. Default: 20 times the usual step, at least 300."""
    phase_seconds: Annotated[int, Range(5, 604800)] = 1800
    """Longest time in one of the other phases (starting, restoring, compiling, saving, evaluating, sampling)."""


class Watched(Protocol):
    """The part of the report that the watchdog reads."""

    @property
    def progress_count(self) -> int:
        """Signs of progress so far."""

    @property
    def phase(self) -> str:
        """The present phase."""

    @property
    def step(self) -> int:
        """Steps done."""


class Watchdog:
    """Checks the report once a second."""

    def __init__(self, report: Watched, config: WatchdogConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Checks nothing before `look` or `start` is called."""
        self._report = report
        self._config = config
        self._clock = clock
        self._progress_count = report.progress_count
        self._since = clock()
        self._last: tuple[str, int] = (report.phase, report.step)
        self._steps: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        self._lock = threading.Lock()

    def start(self, on_stall: Callable[[str], None]) -> None:
        """Watches in a thread; `on_stall` is called once, with what was noticed."""

        def watch() -> None:
            ticks = threading.Event()
            while (found := self.look()) is None:
                ticks.wait(LOOK_SECONDS)
            on_stall(found)

        threading.Thread(target=watch, name="watchdog", daemon=True).start()

    def look(self) -> str | None:
        """What is wrong, as "no progress for 300 s"; None: nothing."""
        seconds, limit = self._seconds_without_progress(), self.limit_seconds
        return f"no progress for {seconds:.0f} s" if seconds > limit else None

    def _seconds_without_progress(self) -> float:
        """Seconds since the last sign of progress; records a new one. Any thread may call it."""
        with self._lock:
            now, progress_count = self._clock(), self._report.progress_count
            if progress_count != self._progress_count:
                phase, step = self._report.phase, self._report.step
                if phase == TRAINING and self._last[0] == TRAINING and step > self._last[1]:
                    self._steps.append((now - self._since) / (step - self._last[1]))
                self._progress_count, self._since, self._last = progress_count, now, (phase, step)
            return now - self._since

    @property
    def limit_seconds(self) -> float:
        """How long the present phase may last without a sign of progress."""
        if self._report.phase != TRAINING:
            return self._config.phase_seconds
        if self._config.step_seconds is not None:
            return self._config.step_seconds
        usual = statistics.median(self._steps) if self._steps else 0.0
        return max(LEAST_STEP_SECONDS, USUAL_STEPS * usual)

    def progress_state(self) -> ProgressState:
        """The progress of this process, and what it is doing. Any thread may call it."""
        where, waits = stack_traces.main_thread()
        return ProgressState(
            phase=self._report.phase,
            step=self._report.step,
            progress_count=self._report.progress_count,
            seconds=self._seconds_without_progress(),
            where=where,
            waits=waits,
        )
