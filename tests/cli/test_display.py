import io

import pytest
from rich.console import Console

from tpujob.local.display import PlainDisplay, ending_line, make_display, progress_line

FULL = {
    "step": 120,
    "steps": 300,
    "loss": 2.5,
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
        (FULL, "step 120/300 · loss 2.500 · 12,346 tokens/s · checkpoint 100 (10 s ago)"),
    ],
)
def test_a_progress_line_says_what_is_known(report, line):
    assert progress_line(report, now=1000.0) == line


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"step": 9}, "finished at step 9"),
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
    display = make_display(Console(file=out, width=200))
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
