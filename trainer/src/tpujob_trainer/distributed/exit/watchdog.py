"""Notices that a run has stopped making progress, and ends it with the stacks of all threads.

- Progress is a change of the report: a step, or a new phase. No caller has to feed the watchdog.
- Steps are short and similar, so their limit is derived from their usual duration; restoring and compiling are not,
  so they have a separate limit, which also applies at the start.
- It runs in a thread and does not access the devices: it works even if the main thread hangs.
"""

import dataclasses
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Protocol

from tpujob_contract.reports.progress_state import ProgressState
from tpujob_trainer.values.from_mapping import Range

_WAITING = (
    ("jax/_src/array.py", None),
    ("jax/_src/distributed.py", None),
    ("multihost/multihost.py", None),
    ("tpujob_trainer/distributed/kv_store.py", None),
    ("tpujob_trainer/train/step_logger.py", "read"),
    ("tpujob_trainer/train/evaluation.py", "read"),
    ("tpujob_trainer/checkpoint/fingerprint.py", "wait"),
)
"""Ends of paths, and functions there (None: any), that wait for other processes: in a computation or JAX's service."""
_LOOKED_AT = 4
"""Number of innermost frames of the main thread that are searched for them."""


def all_threads() -> str:
    """The stack of every thread, the main one first, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 - its documented use
    parts = []
    for ident, frame in frames:
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)


remarks: list[str] = []
"""What a thread that watches the main thread knows about its place; a report of the place ends with them."""


def main_thread() -> tuple[str, bool]:
    """Where the main thread is, as "file:line in function", and whether it waits there for other processes."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident else None  # noqa: SLF001 - as above
    if frame is None:
        return "", False
    inner = _innermost(frame)
    waits = any(path.endswith(end) and wanted in (None, name) for path, _, name in inner for end, wanted in _WAITING)
    # The innermost line is often in the standard library; one in our code, or the user's, is more useful.
    path, line, function = next((place for place in inner if "/lib/python" not in place[0]), inner[0])
    return "; ".join([f"{Path(path).name}:{line} in {function}", *remarks]), waits


def _innermost(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _LOOKED_AT:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


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
        where, waits = main_thread()
        return ProgressState(
            phase=self._report.phase,
            step=self._report.step,
            progress_count=self._report.progress_count,
            seconds=self._seconds_without_progress(),
            where=where,
            waits=waits,
        )
