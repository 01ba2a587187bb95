"""The time of a run by category, over all its attempts: from reports, and a small file in the checkpoint directory.

Process 0 writes `goodput.json`. It has the sums of earlier attempts and the last report of the current one, at most
`WRITE_SECONDS` old; the next attempt adds them up. So a process that is killed loses seconds, not hours.

Steps after the last commit are lost with the attempt. Their time is estimated by their number and the mean step time.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_trainer.storage import Bucket, open_bucket
from tpujob_trainer.telemetry.report import Report

logger = logging.getLogger(__name__)

FILE = "goodput.json"
WRITE_SECONDS = 10.0

CATEGORY = {
    "starting": "start",
    "restoring": "restore",
    "compiling": "compile",
    "training": "step",
    "saving": "checkpoint",
    "evaluating": "evaluation",
    "sampling": "evaluation",
}
"""Phase of the report → category; time in any other phase is `end`."""
CATEGORIES = (*dict.fromkeys(CATEGORY.values()), "data_wait", "end", "lost_steps", "between_attempts")

FACTS = ("step", "committed_step", "restored_from", "attempt_steps", "lost_steps", "data_wait_seconds", "seconds")


def of_attempt(report: Mapping[str, Any], *, is_over: bool) -> dict[str, float]:
    """Seconds of an attempt by category.

    Args:
        report: Its last one.
        is_over: Whether it has ended, so that uncommitted steps are lost.
    """
    spent = dict.fromkeys(CATEGORIES, 0.0)
    for phase, seconds in report["seconds"].items():
        spent[CATEGORY.get(phase, "end")] += seconds
    waited = min(report["data_wait_seconds"], spent["step"])
    spent["data_wait"] += waited
    spent["step"] -= waited
    if report["attempt_steps"]:
        lost = report["lost_steps"]
        if is_over:
            committed = report["committed_step"] if report["committed_step"] is not None else report["restored_from"]
            lost += max(report["step"] - (committed or 0), 0)
        _lose(spent, spent["step"] / report["attempt_steps"] * lost)
    return spent


def fraction(seconds: Mapping[str, float]) -> float | None:
    """The fraction of the time in steps that are not lost; None: no time was spent yet."""
    total = sum(seconds.values())
    return seconds["step"] / total if total > 0 else None


def _lose(seconds: dict[str, float], lost: float) -> None:
    lost = min(lost, seconds["step"])
    seconds["step"] -= lost
    seconds["lost_steps"] += lost


def _sum(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in CATEGORIES}


class Goodput:
    """The account of a run. Process 0 of a run with a checkpoint directory has the file; others count themselves."""

    def __init__(
        self, directory: str | None, report: Report, *, keeps_file: bool, clock: Callable[[], float] = time.time
    ) -> None:
        """Reads the file of earlier attempts, and starts to write."""
        self._bucket = open_bucket(directory) if directory and keeps_file else None
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._before: dict[str, float] = dict.fromkeys(CATEGORIES, 0.0)
        self._attempts = 0
        self._last: Mapping[str, Any] | None = None
        self._has_warned = False
        self._done = threading.Event()
        if self._bucket is not None:
            self._read(self._bucket)
        threading.Thread(target=self._run, name="goodput", daemon=True).start()

    def restored(self, step: int) -> None:
        """Counts steps between `step` and the last commit as lost; for the restore of an older checkpoint."""
        last = self._last
        if last and last["attempt_steps"] and (last["committed_step"] or 0) > step:
            spent = of_attempt(last, is_over=True)
            lost = spent["step"] / last["attempt_steps"] * (last["committed_step"] - step)
            with self._lock:
                _lose(self._before, lost)

    def tell(self) -> dict[str, float]:
        """Writes the account into the report and the file; returns the seconds by category."""
        report, now = self._report.snapshot(), self._clock()
        with self._lock:
            seconds = _sum(self._before, of_attempt(report, is_over=False))
            self._report.update(goodput=_rounded(seconds), goodput_fraction=fraction(seconds))
            if self._bucket is not None:
                self._write(self._bucket, report, now)
        return seconds

    def close(self) -> None:
        """Writes the account a last time."""
        self._done.set()
        self.tell()

    def _run(self) -> None:
        self.tell()
        while not self._done.wait(WRITE_SECONDS):
            self.tell()

    def _read(self, bucket: Bucket) -> None:
        try:
            stored = bucket.look(FILE)
            if stored is None:
                return
            found = json.loads(stored.data)
            self._before = _sum(self._before, found["seconds"])
            self._attempts = int(found["attempts"])
            self._last = found["last"]
            self._before = _sum(self._before, of_attempt(found["last"], is_over=True))
            # The gap between the attempts ends when this process was started.
            began = self._clock() - sum(self._report.snapshot()["seconds"].values())
            self._before["between_attempts"] += max(began - found["written"], 0.0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            logger.warning("Cannot read %s, the account begins anew: %s", FILE, error)

    def _write(self, bucket: Bucket, report: Mapping[str, Any], now: float) -> None:
        content = {
            "attempts": self._attempts + 1,
            "seconds": _rounded(self._before),
            "last": {name: report[name] for name in FACTS},
            "written": round(now, 3),
        }
        try:
            bucket.write(FILE, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("Cannot write %s: %s", FILE, error)


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
