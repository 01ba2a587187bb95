"""`tpujob report`: one file about one or several runs, as far as their directories say."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.html_page import in_chromium
from tpujob.local.closing import Closing, drawn
from tpujob.local.outcome import Outcome
from tpujob.main import app
from tpujob_contract import ExitCode
from tpujob_trainer.tasks.run_report import names_of


class Page(HTMLParser):
    """What a page shows, and what it would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.lines: list[str] = []
        """Names of the lines that are drawn."""
        self.marks: list[str] = []
        self.forbidden: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "link", "iframe") or any(name in ("src", "onload") for name, _ in attrs):
            self.forbidden.append(tag)
        if tag not in ("meta", "img", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["h2"]:
            self.headings.append(data)
        if self._open[-2:] == ["polyline", "title"]:
            self.lines.append(data)
        if self._open[-2:] == ["path", "title"]:
            self.marks.append(data)


def write_run(folder: Path, losses: list[float], *, restored_from: int | None = None) -> str:
    folder.mkdir(parents=True)
    rows = ["step,time,train/loss,train/tokens_seen,evaluation/loss"]
    rows += [f"{10 * n},{1000 + n},{loss},{5120 * n},{loss / 2 if n % 2 else ''}" for n, loss in enumerate(losses, 1)]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "attempts").mkdir()
    (folder / "attempts" / "20260101T000000Z-abc.json").write_text(json.dumps({"restored_from": restored_from}))
    return str(folder)


def report(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *arguments])
    return done.exit_code, done.output


def test_a_run_is_drawn_with_its_restarts_and_its_newest_samples(tmp_path: Path) -> None:
    run = write_run(tmp_path / "team" / "llama" / "checkpoints", [3.0, 2.5, 2.0, 1.75], restored_from=20)
    sample = {"step": 40, "prompt": "a", "text": "<b>a & b</b>"}
    (Path(run) / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    code, text = report(run, "--out", str(tmp_path / "report.html"))
    assert code == 0, text
    assert "llama: step 40 · loss 3.000 → 1.750" in text
    assert "best evaluation 1.000 · 20.5 thousand tokens · 1 attempt" in text

    html = (tmp_path / "report.html").read_text()
    page = Page(html)
    assert page.headings == [
        "Loss by step",
        "Loss by tokens",
        "Loss by time",
        "Evaluation loss",
        "Samples of llama",
    ]
    assert set(page.lines) == {"llama"}
    assert page.marks == ["an attempt went on from step 20"]
    assert page.forbidden == []
    assert "<pre>&lt;b&gt;a &amp; b&lt;/b&gt;</pre>" in html


def test_runs_are_laid_over_one_another_by_what_tells_them_apart(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name / "checkpoints", [3.0, 2.0, last], restored_from=20)
        for name, last in (("low", 1.0), ("high", 1.5))
    ]
    code, text = report(*runs, "--out", str(tmp_path / "both.html"), "-o", "json")
    assert code == 0, text
    found = json.loads(text)
    assert [(run["name"], run["loss"], run["step"]) for run in found["runs"]] == [("low", 1.0, 30), ("high", 1.5, 30)]
    page = Page((tmp_path / "both.html").read_text())
    assert page.lines[:2] == ["low", "high"]
    assert page.marks == [], "marks of several runs would be taken for one another's"


@pytest.mark.parametrize(
    ("runs", "out", "words"),
    [
        (["none"], "report.html", "none has no metrics.csv with numbers; name the spec.checkpointDir of a run"),
        (["empty"], "report.html", "empty has no metrics.csv with numbers"),
        (["good", "none"], "report.html", "none has no metrics.csv with numbers"),
        (["damaged"], "report.html", "damaged cannot be read"),
        (["good"], "absent/report.html", "--out: .*report.html cannot be written: No such file or directory"),
    ],
    ids=["no folder", "no rows", "one of two", "samples that are not JSON", "nowhere to write"],
)
def test_what_cannot_be_drawn_is_named_and_nothing_is_written(
    tmp_path: Path, runs: list[str], out: str, words: str
) -> None:
    write_run(tmp_path / "good", [2.0, 1.0])
    write_run(tmp_path / "empty", [])
    damaged = write_run(tmp_path / "damaged", [2.0, 1.0])
    (Path(damaged) / "samples.jsonl").write_text("no json\n")
    code, text = report(*(str(tmp_path / run) for run in runs), "--out", str(tmp_path / out))
    assert code == ExitCode.NOT_FOUND, text
    assert re.search(words, text), text
    assert not list(tmp_path.glob("**/*.html*"))


@pytest.mark.parametrize(
    ("directories", "names"),
    [
        (["gs://bucket/team/llama"], ["llama"]),
        (["/w/.tpujob/default/llama/checkpoints"], ["llama"]),
        (["/w/a/checkpoints", "/w/b/checkpoints"], ["a", "b"]),
        (["gs://b/sweep/lr-1", "gs://b/sweep/lr-2", "gs://b/base"], ["sweep/lr-1", "sweep/lr-2", "base"]),
        (["/w/a", "/w/a"], ["a", "a"]),
        (["/w/a", "/w/a/b"], ["a", "b"]),
    ],
)
def test_directories_are_called_by_what_tells_them_apart(directories: list[str], names: list[str]) -> None:
    assert names_of(directories) == names


def test_a_run_that_ends_names_its_curves_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = write_run(tmp_path / "job" / "checkpoints", [3.0, 2.5, 2.0])
    lines = drawn(directory, tmp_path / "job")
    assert lines == [
        "loss         3.000 → 2.000 █▅▁",
        "report       job/report.html, its numbers are in job/checkpoints/metrics.csv",
    ]
    assert "Loss by step" in Page((tmp_path / "job" / "report.html").read_text()).headings
    done = Outcome(phase="Succeeded", exit_code=0, culprit=None)
    report = {"message": "finished at step 30", "checkpoint": directory}
    closing = Closing(done, report, again="tpujob run job.yaml", has_trainer=True, curves=lines)
    assert list(closing.lines())[-2:] == lines


def test_a_program_without_numbers_has_no_curves(tmp_path: Path) -> None:
    assert drawn(str(tmp_path / "checkpoints"), tmp_path) == []


def test_curves_that_cannot_be_drawn_do_not_hide_how_the_run_ended(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "checkpoints", [2.0, 1.0])
    (line,) = drawn(directory, tmp_path / "absent")
    assert re.fullmatch(r"report       is not written: --out: .*No such file or directory; .*", line)


@pytest.mark.parametrize("width", [1200, 400])
def test_a_browser_shows_every_chart_in_its_window(tmp_path: Path, width: int) -> None:
    runs = [write_run(tmp_path / name / "checkpoints", [3.0, 2.0, 1.0]) for name in ("low", "high")]
    report(*runs, "--out", str(tmp_path / "report.html"))
    shown = report_in_window(tmp_path, width)
    assert shown["charts"] == 4
    assert shown["drawn"] == 4, "a chart has no height or is outside"
    assert shown["beyond"] <= 0, "pixels wider than the window"


def report_in_window(folder: Path, width: int) -> dict[str, int]:
    """What Chromium makes of `report.html` in a frame of so many pixels."""
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    page = in_chromium((folder / "frame.html").as_uri(), folder, "--allow-file-access-from-files")
    found: dict[str, int] = json.loads(page.words.split("FOUND")[1])
    return found


FRAME = """<!doctype html><iframe src="report.html" width="WIDTH" height="800" style="border: 0"></iframe><p id="p"></p>
<script>onload = () => {
  const frame = document.querySelector("iframe"), inside = frame.contentDocument;
  const charts = [...inside.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  const drawn = charts.filter(box => box.height > 60 && box.left >= 0 && box.right <= frame.clientWidth);
  const beyond = inside.documentElement.scrollWidth - frame.clientWidth;
  const found = {charts: charts.length, drawn: drawn.length, beyond};
  document.querySelector("p").textContent = "FOUND" + JSON.stringify(found) + "FOUND";
}</script>
"""
