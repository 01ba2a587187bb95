"""What process 0 says is believed as far as it makes sense."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tpujob_operator.observe.report import (
    Progress,
    UnitCounts,
    final_report,
    progress_from_report,
    without_final_report,
)

THEN = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)

REPORTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "absent is unknown": ({}, {"is_checkpoint_healthy": None, "is_data_healthy": None, "goodput": {}}),
    "null is well": (
        {"checkpoint_failing_since": None, "data_slow_message": None},
        {"is_checkpoint_healthy": True, "is_data_healthy": True},
    ),
    "saves fail": (
        {"checkpoint_failing_since": THEN.timestamp(), "checkpoint_message": "403"},
        {"is_checkpoint_healthy": False, "checkpoint_failing_since": THEN, "checkpoint_message": "403"},
    ),
    "data is slow": (
        {"data_slow_message": "429", "data_wait_fraction": 0.25},
        {"is_data_healthy": False, "data_message": "429", "data_wait_fraction": 0.25},
    ),
    "nonsense": (
        {"data_wait_fraction": 7, "goodput": "all", "checkpoint_message": 5, "step": -1, "loss": 10**400},
        {"data_wait_fraction": None, "goodput": {}, "checkpoint_message": "", "step": None, "loss": None},
    ),
    "units": (
        {"units": 9, "units_done": 4, "units_claimed": 2, "rows_per_second": 7.5, "unit_failures": {"storage": 3}},
        {"units": UnitCounts(total=9, done=4, claimed=2, rows_per_second=7.5, failures={"storage": 3})},
    ),
    "units of another kind": ({"units": "9", "units_done": 4}, {"units": None}),
    "units that are all done": (
        {"units": 3, "units_done": 3},
        {"units": UnitCounts(total=3, done=3, claimed=None, rows_per_second=None, failures={})},
    ),
    "units without those that are done": ({"units": 3}, {"units": None}),
    "units done of nothing": ({"units_done": 3}, {"units": None}),
    "no wait for data": ({"data_wait_fraction": 0}, {"data_wait_fraction": 0}),
    "nothing but waits for data": ({"data_wait_fraction": 1}, {"data_wait_fraction": 1}),
    "less than no wait": ({"data_wait_fraction": -0.5}, {"data_wait_fraction": None}),
    "more than all waits": ({"data_wait_fraction": 1.5}, {"data_wait_fraction": None}),
    "more units done than there are": ({"units": 3, "units_done": 4}, {"units": None}),
    "goodput": (
        {"goodput": {"step": 90.7, "restore": 3, "lost": None, "x" * 99: 1}},
        {"goodput": {"step": 90, "restore": 3, "x" * 40: 1}},
    ),
    "very many phases": (
        {"goodput": {str(n): n for n in range(99)}},
        {"goodput": {str(n): n for n in range(32)}},
    ),
}


@pytest.mark.parametrize(("report", "expected"), REPORTS.values(), ids=REPORTS.keys())
def test_report_is_read_leniently(report: dict[str, Any], expected: dict[str, Any]) -> None:
    progress = progress_from_report(report)
    assert {name: getattr(progress, name) for name in expected} == expected


MESSAGES = {
    "none": ("exit code 1\nlast line", None, "exit code 1\nlast line"),
    "alone": ('report: {"phase": "finished", "step": 9}', Progress(phase="finished", step=9), ""),
    "after words": ('stopped\nreport: {"step": 9}\n', Progress(phase="", step=9), "stopped"),
    "cut off": ('stopped\nreport: {"step": 9', None, 'stopped\nreport: {"step": 9'),
    "not JSON": ("report: {step}", None, ""),
}


@pytest.mark.parametrize(("message", "progress", "words"), MESSAGES.values(), ids=MESSAGES.keys())
def test_last_report_travels_in_the_termination_message(message: str, progress: Progress | None, words: str) -> None:
    assert final_report(message) == progress
    assert without_final_report(message) == words
