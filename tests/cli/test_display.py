import io

import pytest
from rich.console import Console

from tpujob.local.display import LiveDisplay, PlainDisplay, ending_line, fit, make_display, progress_line

FULL = {
    "step": 120,
    "steps": 300,
    "loss": 2.5,
    "tokens_seen": 1_966_080,
    "tokens_per_second": 12345.6,
    "committed_step": 100,
    "committed_time": 990.0,
}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({}, ""),
        ({"step": 3}, "step 3"),
        ({"step": 3, "steps": 9, "loss": None}, "step 3/9"),
        ({"units": 12, "units_done": 10, "rows_per_second": 25.04, "step": 3}, "10 of 12 units · 25.0 rows/s"),
        (
            {"units": 12, "units_done": 10, "units_here": 10, "rows_here": 40},
            "10 of 12 units · 40 rows",
        ),
        ({"units": 1, "units_done": 0, "units_here": 0}, "0 of 1 unit"),
        (FULL, "step 120/300 · loss 2.500 · 2.0 M tokens · 12,346 tokens/s · checkpoint 100 (10 s ago)"),
    ],
)
def test_a_progress_line_says_what_is_known(report, line):
    assert progress_line(report, now=1000.0) == line


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"step": 9}, "finished at step 9"),
        ({"step": 6, "units": 6, "units_done": 6}, "finished · 6 of 6 units"),
        ({}, "finished"),
        (
            {"step": 200, "loss_first": 5.81, "loss": 1.9704, "tokens_per_second": 4400},
            "finished at step 200 · loss 5.810 → 1.970 · 4,400 tokens/s",
        ),
    ],
)
def test_the_ending_says_how_far_the_loss_came(report, line):
    assert ending_line(report) == line


def test_a_log_gets_a_line_for_each_change_and_none_between():
    out = io.StringIO()
    display = make_display(Console(file=out, width=200), has_units=False)
    assert isinstance(display, PlainDisplay)
    for report in (
        {},
        {"phase": "compiling"},
        {"phase": "compiling"},
        {"phase": "training", **FULL},
        {"phase": "training", **FULL},
    ):
        display.show(report)
    lines = out.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["starting", "compiling", "step 120/300"]


def test_what_hinders_is_said_at_once_and_not_repeated():
    out = io.StringIO()
    display = make_display(Console(file=out, width=200), has_units=False)
    failing = {"phase": "training", "checkpoint_message": "OSError: No space left on device", **FULL}
    for report in (failing, failing, {"phase": "training", **FULL}):
        display.show(report)
    said = [line for line in out.getvalue().splitlines() if line.startswith("checkpoints: ")]
    assert said == ["checkpoints: OSError: No space left on device", "checkpoints: recovered"]


def test_a_resumed_run_says_from_which_step():
    out = io.StringIO()
    display = make_display(Console(file=out, width=200), has_units=False)
    for _ in range(2):
        display.show({"phase": "compiling", "restored_from": 100})
    assert out.getvalue().splitlines().count("resumed from step 100") == 1


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_bar_is_there_at_every_width(width):
    out = io.StringIO()
    display = make_display(Console(file=out, width=width, force_terminal=True, color_system=None), has_units=False)
    assert isinstance(display, LiveDisplay)
    display.show({"phase": "training", **FULL})
    display._progress.refresh()
    display.close()
    lines = [line for line in out.getvalue().replace("\r", "\n").splitlines() if "step 120/300" in line]
    assert lines
    assert all("━━━" in line for line in lines)


def test_a_narrow_line_loses_its_last_parts():
    assert fit(["step 1/9", "loss 2.5", "1:00"], 19) == "step 1/9 · loss 2.5"


def test_an_extraction_is_shown_by_its_units():
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200), has_units=True)
    for done in (0, 1, 2):
        display.show({"phase": "compiling" if not done else "extracting", "units": 12, "units_done": done})
    display.show({"phase": "stopping", "units": 12, "units_done": 1})
    lines = out.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == [
        "compiling",
        "extracting",
        "1 of 12 units",
        "stopping: giving units back",
    ]


@pytest.mark.parametrize(
    ("has_units", "said"), [(True, "stopping: giving units back"), (False, "stopping: saving first")]
)
def test_a_stop_while_compiling_is_that_of_the_task(has_units, said):
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200), has_units=has_units)
    for phase in ("compiling", "stopping"):
        display.show({"phase": phase})
    assert out.getvalue().splitlines() == ["compiling", said]
