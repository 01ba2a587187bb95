"""The wire between trainer, operator and command line: names, order and places stay as they are."""

import datetime

import pytest

from tpujob_contract.reports import report

STARTED = datetime.datetime(2030, 1, 2, 5, 4, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


def test_names_and_their_order_stay():
    assert report.FIELDS == (
        "phase", "process_id", "processes", "attempt", "step", "steps", "loss", "loss_first", "gradient_norm",
        "evaluation_loss", "evaluation_step", "tokens_per_second", "mfu", "attempt_steps", "lost_steps", "goodput",
        "goodput_fraction", "committed_step", "committed_time", "checkpoint_failing_since", "checkpoint_message",
        "restored_from", "checkpoint", "data_wait_seconds", "data_wait_fraction", "data_slow_message", "message",
        "sample", "units", "units_done", "units_here", "rows_here", "seconds", "exit_code",
        "mfu_causal", "units_claimed", "unit_failures", "rows_per_second", "preflight_message",
        "straggler_message", "tokens_seen", "in_place_restarts", "in_place_cause", "in_place",
        "values_not_finite",
    )  # fmt: skip


def test_phases_stay():
    assert report.PHASES == (
        "starting", "restoring", "compiling", "training", "saving", "evaluating", "sampling", "extracting", "finished",
        "stopping", "failed",
    )  # fmt: skip


def test_final_line_keeps_what_an_end_needs():
    facts = {"phase": "finished", "step": 9, "loss": None, "sample": "tick", "goodput": {"step": 1.5}, "seconds": {}}
    assert report.final_line(facts) == (
        'report: {"phase": "finished", "step": 9, "loss": null, "goodput": {"step": 1.5}}'
    )
    assert set(report.FINAL_FIELDS) < set(report.FIELDS)


@pytest.mark.parametrize(
    ("message", "words", "found"),
    [
        ("exit code 1\nlast line", "exit code 1\nlast line", None),
        ('report: {"step": 9}', "", '{"step": 9}'),
        ('stopped\nreport: {"step": 9}\n', "stopped", '{"step": 9}'),
        ('a report: {"step": 9}', 'a report: {"step": 9}', None),
        ('stopped\nreport: {"step": 9', 'stopped\nreport: {"step": 9', None),
    ],
    ids=["none", "alone", "after words", "not at the start of a line", "cut off"],
)
def test_final_report_is_split_from_the_words(message, words, found):
    assert report.split_final_report(message) == (words, found)


def test_attempts_are_files_that_sort_by_time():
    name = report.attempt_name(STARTED, "1.0-9f3a01bc")
    assert name == "attempts/20300102T030405Z-9f3a01bc.json"
    assert report.stacks_name(name, 3) == "attempts/20300102T030405Z-9f3a01bc.stacks-3.txt"
    later = report.attempt_name(STARTED + datetime.timedelta(seconds=1), "1.1-00000000")
    assert report.newest_first([name, report.stacks_name(name, 0), later]) == [later, name]
