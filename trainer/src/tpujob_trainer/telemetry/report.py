"""The state of this process: the facts behind /report, the gauges of /metrics and the attempt's file.

`attempts/<utc start>-<nonce>.json` is the report of process 0 with `exit_code`, which is null while the attempt runs,
and if it was killed.
"""

import contextlib
import copy
import datetime
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from tpujob_contract.reports import report as wire
from tpujob_contract.reports.report import Phase
from tpujob_trainer.storage import open_bucket

_ADDED_LATER = {"seconds", "exit_code"}
_KNOWN_AT_START: wire.Report = {
    "phase": "starting",
    "process_id": 0,
    "processes": 1,
    "step": 0,
    "attempt_steps": 0,
    "lost_steps": 0,
    "data_wait_seconds": 0.0,
}
INITIAL = cast(
    "wire.Report", {**dict.fromkeys(field for field in wire.FIELDS if field not in _ADDED_LATER), **_KNOWN_AT_START}
)
"""Every field with its initial value; `snapshot` adds `seconds`. Times are Unix seconds."""


CURVE_POINTS = 1000


class Report:
    """The facts, written by the trainer and read by the HTTP server's threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, age: float = 0.0) -> None:
        """`age` is the age of the process, in seconds, which counts as starting."""
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {**copy.deepcopy(INITIAL)}
        self._seconds: dict[str, float] = {}
        self._since = clock() - age
        self._live: list[Callable[[], dict[str, Any]]] = []
        self._progress_count = 0
        self._curve: list[tuple[int, float]] = []
        self._curve_stride = 1

    def update(self, **facts: Any) -> None:
        """Replaces facts by name.

        Raises:
            KeyError: there is no such fact; use `enter` for `phase`.
        """
        unknown = sorted(facts.keys() - INITIAL.keys() | facts.keys() & {"phase"})
        if unknown:
            raise KeyError(f"a report has no {', '.join(unknown)}")
        with self._lock:
            self._facts.update(facts)
            self._progress_count += "step" in facts
            if isinstance(facts.get("loss"), float):
                self._add_to_curve(self._facts["step"], facts["loss"])
            if self._facts["loss_first"] is None:
                self._facts["loss_first"] = self._facts["loss"]

    def enter(self, phase: Phase) -> None:
        """Starts a phase; the time since the last change counts for the phase before."""
        with self._lock:
            self._account()
            self._facts["phase"] = phase
            self._progress_count += 1

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """A context manager for a phase within another one, which continues afterwards."""
        with self._lock:
            before = self._facts["phase"]
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    @property
    def phase(self) -> Phase:
        """The current phase."""
        with self._lock:
            phase: Phase = self._facts["phase"]
            return phase

    @property
    def step(self) -> int:
        """Steps done."""
        with self._lock:
            return int(self._facts["step"])

    def tick(self) -> None:
        """Signals progress in a long phase."""
        with self._lock:
            self._progress_count += 1

    @property
    def progress_count(self) -> int:
        """Signs of progress so far: steps, phase changes and ticks. The watchdog checks that they continue."""
        return self._progress_count

    def follow(self, live: Callable[[], dict[str, Any]]) -> None:
        """Adds facts that each `snapshot` computes, so that they are current even while the loop waits."""
        self._live.append(live)

    def snapshot(self) -> dict[str, Any]:
        """All facts as JSON values, and the seconds spent in each phase so far."""
        for live in self._live:
            self.update(**live())
        with self._lock:
            self._account()
            seconds = {phase: round(spent, 3) for phase, spent in self._seconds.items()}
            return copy.deepcopy(self._facts) | {"seconds": seconds}

    def curve(self) -> list[tuple[int, float]]:
        """Step and loss so far: at most 1000 points, spread evenly over this attempt."""
        with self._lock:
            return list(self._curve)

    def _add_to_curve(self, step: int, loss: float) -> None:
        if self._curve and step < self._curve[-1][0] + self._curve_stride:
            return
        self._curve.append((step, loss))
        if len(self._curve) >= CURVE_POINTS:
            self._curve = self._curve[::2]
            self._curve_stride = self._curve[1][0] - self._curve[0][0]

    def _account(self) -> None:
        now = self._clock()
        phase = self._facts["phase"]
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._since
        self._since = now


logger = logging.getLogger(__name__)


class Attempt:
    """The file of an attempt. Only process 0 writes it."""

    def __init__(self, directory: str, *, attempt_id: str, started: datetime.datetime, is_lead: bool) -> None:
        """`attempt_id` ends with the nonce that makes the file's name unique."""
        self._bucket = open_bucket(directory)
        self._name = wire.attempt_name(started, attempt_id)
        self._is_lead = is_lead

    def write(self, report: Mapping[str, Any], *, exit_code: int | None = None) -> None:
        """Replaces the file. An error is only a warning: it must not make a finished training fail."""
        if not self._is_lead:
            return
        text = json.dumps({**report, "exit_code": exit_code}, indent=1) + "\n"
        try:
            self._bucket.write(self._name, text)
        except OSError as error:
            logger.warning("Cannot write the attempt's report: %s", error)

    def write_stacks(self, process_id: int, text: str) -> None:
        """Writes the stacks of a process next to the file, as `<its name>.stacks-<process>.txt`; for all processes."""
        name = wire.stacks_name(self._name, process_id)
        try:
            self._bucket.write(name, text)
        except OSError as error:
            logger.warning("Cannot write the stacks: %s", error)
        else:
            logger.info("The stacks of all threads are in %s/%s", self._bucket.url, name)
