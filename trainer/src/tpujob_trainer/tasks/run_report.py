"""An HTML report about one or more runs, from their checkpoint directories: curves, restarts, checkpoints, samples.

    python -m tpujob_trainer.tasks.run_report '{"directories": ["gs://bucket/run"], "out": "report.html"}'

The file has no scripts and loads nothing. With `{"rows_of": DIRECTORY}` no file is written, and the answer has the
numbers of a run by step. Writes one JSON object to stdout; `tpujob report` and `tpujob.Run.metrics` start it.
"""

import datetime
import html
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob_contract.whole_file import replaced
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.inspection import attempts
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.telemetry import charts, tracker_files
from tpujob_trainer.telemetry.page import SECURITY_POLICY, STYLE
from tpujob_trainer.telemetry.tracker_files import STEP, TIME, Row
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import NotFoundError
from tpujob_trainer.values.programs import answer, log_to_stderr

LOSS, TOKENS, EVALUATION = "train/loss", "train/tokens_seen", "evaluation/loss"
CURVES = (
    (EVALUATION, "Evaluation loss"),
    ("train/tokens_per_second", "Tokens per second"),
    ("train/mfu", "Model FLOPs utilisation"),
    ("train/gradient_norm", "Gradient norm"),
    ("train/learning_rate", "Learning rate"),
)
"""Charts by step, below those of the loss."""
UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
"""Of a chart's time axis."""
MOST_SAMPLES = 3
"""Of each run, the newest."""


@dataclass(frozen=True)
class Run:
    """The data of a run."""

    name: str
    directory: str
    rows: Sequence[Row]
    attempts: Sequence[Mapping[str, Any]]
    checkpoints: Sequence[int]
    samples: Sequence[Mapping[str, Any]]

    def points(self, column: str, across: str) -> list[tuple[float, float]]:
        """Pairs of the values of two columns, from the rows that have both."""
        return [(row[across], row[column]) for row in self.rows if across in row and column in row]

    @property
    def seconds(self) -> float:
        """Time from the first row to the last."""
        return self.rows[-1][TIME] - self.rows[0][TIME]

    def by_time(self, column: str, unit_seconds: float) -> list[tuple[float, float]]:
        """Pairs of the time since the first row, in units of `unit_seconds`, and a column's value."""
        began = self.rows[0][TIME]
        return [((at - began) / unit_seconds, value) for at, value in self.points(column, TIME)]

    def summary(self) -> dict[str, Any]:
        """The figures of the run, as JSON values; None: unknown."""
        loss, evaluation = self.points(LOSS, STEP), self.points(EVALUATION, STEP)
        tokens = self.points(TOKENS, STEP)
        return {
            "name": self.name,
            "directory": self.directory,
            "step": int(self.rows[-1][STEP]),
            "loss_first": loss[0][1] if loss else None,
            "loss": loss[-1][1] if loss else None,
            "evaluation_loss_best": min((value for _, value in evaluation), default=None),
            "tokens": int(tokens[-1][1]) if tokens else None,
            "seconds": self.seconds,
            "attempts": len(self.attempts),
            "checkpoints": list(self.checkpoints),
            "losses": [value for _, value in loss[:: max(1, len(loss) // 60)]],
        }


def read_run(directory: str, name: str) -> Run:
    """The run of a checkpoint directory.

    Raises:
        NotFoundError: it has no metrics.csv, or cannot be read.
    """
    bucket = open_bucket(directory)
    try:
        stored = bucket.look(tracker_files.METRICS)
        rows = tracker_files.parse_metrics(stored.data) if stored else []
        if not rows:
            raise NotFoundError(
                f"DIRECTORY: {directory} has no {tracker_files.METRICS} with numbers; name the spec.checkpointDir of a "
                "run of the trainer that has made steps"
            )
        texts = bucket.look(tracker_files.SAMPLES)
        samples = tracker_files.parse_samples(texts.data) if texts else []
        return Run(name, directory, rows, attempts(bucket), layout.committed(directory), samples)
    except (OSError, ValueError) as error:
        raise NotFoundError(f"DIRECTORY: {directory} cannot be read: {storage_errors.brief(error)}") from error


def render(runs: Sequence[Run], *, now: float) -> str:
    """The HTML document; `now` is Unix time."""
    title = ", ".join(run.name for run in runs)
    written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now))
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{SECURITY_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{STYLE}{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1><p>Written at {written} UTC.</p>",
        _table(runs),
        *_charts(runs),
        *_samples(runs),
        "</body></html>\n",
    )
    return "".join(parts)


_STYLE = """
.runs { overflow-x: auto; } .runs th { padding-right: 1em; }
.runs td { padding-right: 1em; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; background: #f7f7f7; padding: .6em; }
"""


def _table(runs: Sequence[Run]) -> str:
    """A table with a column for each run, so that a narrow window shows all facts of one."""
    columns = [_facts(run, charts.color_of(number)) for number, run in enumerate(runs)]
    rows = [
        f"<tr><th>{name}</th>{''.join(f'<td>{column[name]}</td>' for column in columns)}</tr>"
        for name in columns[0]
        if any(column[name] for column in columns)
    ]
    return f'<div class="runs"><table>{"".join(rows)}</table></div>'


def _facts(run: Run, color: str) -> dict[str, str]:
    """The facts of a run as HTML by name; empty: unknown."""
    found = run.summary()
    return {
        "run": f'<span style="color:{color}">■</span> {html.escape(run.name)}',
        "step": f"{found['step']:,}",
        "loss, nats per token": _or_nothing(found["loss"], "{:.4f}"),
        "best evaluation loss": _or_nothing(found["evaluation_loss_best"], "{:.4f}"),
        "tokens": _or_nothing(found["tokens"], "{:,}"),
        "time": str(datetime.timedelta(seconds=round(found["seconds"]))),
        "attempts": f"{found['attempts']:,}",
        "checkpoints that are kept": f"{len(found['checkpoints']):,}",
    }


def _or_nothing(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _charts(runs: Sequence[Run]) -> Iterator[str]:
    marks = [] if len(runs) > 1 else [*_checkpoint_marks(runs[0]), *_restart_marks(runs[0])]
    by_step = [charts.Line(run.name, run.points(LOSS, STEP), number) for number, run in enumerate(runs)]
    yield _chart("Loss by step", by_step, "step", marks)
    if marks:
        yield "<p>Grey: checkpoints that are kept. Orange: an attempt went on from there.</p>"
    by_tokens = [charts.Line(run.name, run.points(LOSS, TOKENS), number) for number, run in enumerate(runs)]
    yield _chart("Loss by tokens", by_tokens, "tokens seen")
    unit, size = _unit(max(run.seconds for run in runs))
    by_time = [charts.Line(run.name, run.by_time(LOSS, size), number) for number, run in enumerate(runs)]
    yield _chart("Loss by time", by_time, f"{unit} since the first step")
    for column, title in CURVES:
        lines = [charts.Line(run.name, run.points(column, STEP), number) for number, run in enumerate(runs)]
        yield _chart(title, lines, "step")


def _unit(seconds: float) -> tuple[str, int]:
    """The largest unit of which a span has more than 1.5, or seconds."""
    return next((unit for unit in UNITS if seconds > 1.5 * unit[1]), UNITS[-1])


def _chart(title: str, lines: Sequence[charts.Line], across: str, marks: Sequence[charts.Mark] = ()) -> str:
    drawn = charts.chart(lines, across=across, label=title, marks=marks)
    return drawn and f"<h2>{title}</h2>{drawn}"


def _checkpoint_marks(run: Run) -> Iterator[charts.Mark]:
    return (charts.Mark(step, f"checkpoint of step {step}", color=5) for step in run.checkpoints)


def _restart_marks(run: Run) -> Iterator[charts.Mark]:
    for each in run.attempts:
        step = each.get("restored_from")
        if isinstance(step, int):
            yield charts.Mark(step, f"an attempt went on from step {step}", color=1)


def _samples(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.samples:
            yield f"<h2>Samples of {html.escape(run.name)}</h2>"
        for each in run.samples[-MOST_SAMPLES:]:
            yield f"<p>Step {each.get('step')}</p><pre>{html.escape(str(each.get('text')))}</pre>"


def names_of(directories: Sequence[str]) -> list[str]:
    """Short distinct names of directories: without their common leading and trailing parts."""
    split = [directory.rstrip("/").split("/") for directory in directories]
    if len(split) == 1:
        return [_named(split[0])]
    shortest = min(map(len, split))
    first = next((at for at in range(shortest) if len({parts[at] for parts in split}) > 1), shortest)
    last = next((at for at in range(1, shortest + 1) if len({parts[-at] for parts in split}) > 1), 1) - 1
    return ["/".join(parts[first : len(parts) - last]) or _named(parts) for parts in split]


def _named(parts: Sequence[str]) -> str:
    """The last part, or the one before if the last is `checkpoints`, as in directories of `tpujob run`."""
    return parts[-2] if parts[-1] == "checkpoints" and len(parts) > 1 else parts[-1]


def main() -> int:
    """Answers the request in the first argument; returns the exit code."""
    log_to_stderr(logging.ERROR)
    request = json.loads(sys.argv[1])
    return answer(lambda: _rows(**request) if "rows_of" in request else _reported(**request))


def _rows(rows_of: str) -> dict[str, Any]:
    return {"rows": list(read_run(rows_of, rows_of).rows)}


def _reported(directories: Sequence[str], out: str) -> dict[str, Any]:
    named = zip(directories, names_of(directories), strict=True)
    runs = [read_run(directory, name) for directory, name in named]
    _write(Path(out), render(runs, now=time.time()))
    return {"file": out, "runs": [run.summary() for run in runs]}


def _write(out: Path, text: str) -> None:
    try:
        with replaced(out) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotFoundError(
            f"--out: {out} cannot be written: {error.strerror}; name a file in a folder of yours"
        ) from error


if __name__ == "__main__":
    programs.end(main())
