"""Trackers in files of the checkpoint directory: numbers in `metrics.csv`, texts in `samples.jsonl`.

The file is rewritten each time, so that it is complete at any time and on any storage: a bucket cannot append. It is
written less often if a write takes long, and thinned out when it becomes long. A run that goes back to an earlier step
replaces later ones.

The file is rewritten for each text, so that it is complete at any time and on any storage: a bucket cannot append. It
has the newest thousand texts. A run that goes back to an earlier step replaces later ones.
"""

import contextlib
import csv
import io
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_trainer.storage import open_bucket
from tpujob_trainer.values.json_object import json_object

METRICS = "metrics.csv"
STEP, TIME = "step", "time"
"""The first two columns: optimizer steps done, and Unix time."""
MOST_ROWS = 20_000
"""With more, every second row is dropped."""
INTERVAL_SECONDS = 10.0
PART_OF_TIME = 0.02
"""The largest fraction of the time for writing."""

Row = dict[str, float]


class MetricsFile:
    """Records numbers; a tracker."""

    def __init__(
        self,
        directory: str,
        *,
        first_step: int,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Reads the existing file.

        Args:
            directory: The checkpoint directory.
            first_step: Later steps that an earlier attempt recorded are left out.
            clock: Seconds, monotonic.
            now: Unix time.

        Raises:
            OSError: The directory cannot be read.
        """
        self._bucket = open_bucket(directory)
        stored = self._bucket.look(METRICS)
        self._rows = [row for row in parse_metrics(stored.data) if row[STEP] <= first_step] if stored else []
        self._clock, self._now = clock, now
        self._next = clock()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds numbers to those of a step, and drops later steps."""
        while self._rows and self._rows[-1][STEP] > step:
            self._rows.pop()
        if not self._rows or self._rows[-1][STEP] != step:
            self._rows.append({STEP: step, TIME: round(self._now(), 3)})
        self._rows[-1].update(values)
        if len(self._rows) > MOST_ROWS:
            self._rows = self._rows[1::2]
        if self._clock() >= self._next:
            self._write()

    def text(self, step: int, prompt: str, text: str) -> None:
        """Does nothing: texts are not recorded."""

    def close(self) -> None:
        """Writes what is left."""
        self._write()

    def _write(self) -> None:
        began = self._clock()
        self._bucket.write(METRICS, as_csv(self._rows))
        ended = self._clock()
        self._next = ended + max(INTERVAL_SECONDS, (ended - began) / PART_OF_TIME)


def as_csv(rows: list[Row]) -> str:
    """Rows as CSV, with a header; numbers that a row lacks are empty."""
    names = list(dict.fromkeys([STEP, TIME, *(name for row in rows for name in row)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, STEP: int(row[STEP])} for row in rows)
    return text.getvalue()


def parse_metrics(data: bytes) -> list[Row]:
    """Rows of a file, in its order; lines without step and time, as in an edited file, are left out."""
    rows = []
    with contextlib.suppress(csv.Error):  # a field longer than csv reads: it is no number, and what follows is lost
        for line in csv.DictReader(io.StringIO(data.decode(errors="replace"))):
            row = {name: number for name, text in line.items() if name and (number := _number(text)) is not None}
            if all(0 <= row.get(name, -1) < _MOST for name in (STEP, TIME)):
                rows.append(row)
    return rows


_MOST = 1e13
"""Of steps and seconds: more is damage, and no `timedelta`."""


def _number(text: object) -> float | None:
    try:
        return float(text) if isinstance(text, str) else None
    except ValueError:
        return None


SAMPLES = "samples.jsonl"
LIMIT = 1000


def parse_samples(content: bytes) -> list[dict[str, Any]]:
    """The lines of a file of samples, in their order.

    Raises:
        ValueError: one is damaged. If it were skipped, the next text would delete it.
    """
    return [json_object(line) for line in content.splitlines()]


class SamplesFile:
    """Records texts; a tracker."""

    def __init__(self, directory: str) -> None:
        """Reads the existing file.

        Raises:
            OSError: the directory cannot be read.
            ValueError: the file is damaged; it stays as it is.
        """
        self._bucket = open_bucket(directory)
        stored = self._bucket.look(SAMPLES)
        self._lines = parse_samples(stored.data) if stored else []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Does nothing: numbers are not recorded."""

    def text(self, step: int, prompt: str, text: str) -> None:
        """Adds a text to those of other prompts of the same step, and drops later steps."""
        before = [
            line for line in self._lines if line["step"] < step or (line["step"] == step and line["prompt"] != prompt)
        ]
        self._lines = [*before, {"step": step, "time": round(time.time(), 3), "prompt": prompt, "text": text}][-LIMIT:]
        whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines)
        self._bucket.write(SAMPLES, whole)

    def close(self) -> None:
        """Does nothing: everything is written already."""
