"""Hosts that the trainer names reach the status, and leave it when they are so no more."""

from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, condition, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.report import TEXT_LENGTH, progress_from_report
from tpujob_resource.messages.conditions import Type
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
BEHIND = "process 1 on host llama-w-0-1 (training, after step 7, at lane.py:8 in read_unit)"
SLOW = "host llama-w-0-1 is slow"
EARLIER = {"progress.stragglerMessage": BEHIND, "progress.preflightMessage": SLOW}

REPORTS: dict[str, tuple[dict[str, Any], tuple[str | None, str | None]]] = {
    # what the report says, and what the status then does of stragglers and of the pre-flight
    "named": ({"straggler_message": "process 2", "preflight_message": "host c"}, ("process 2", "host c")),
    "none any more": ({"straggler_message": None, "preflight_message": None}, (None, None)),
    "of an older trainer": ({}, (BEHIND, SLOW)),
    "nonsense": ({"straggler_message": {"a": 1}, "preflight_message": 7}, (None, None)),
    "far too long": ({"straggler_message": "x" * 9999}, ("x" * TEXT_LENGTH, SLOW)),
}


def after(status: dict[str, Any], report: dict[str, Any], **fields: Any) -> dict[str, Any]:
    progress = progress_from_report({"phase": "training", "step": 7, **report})
    seen = observed(job(status=status), jobset=jobset(), hosts=BOTH, progress=progress, **fields)
    return status_of(decide(seen, SETTINGS))


@pytest.mark.parametrize("name", REPORTS)
def test_status_says_what_the_report_does(name: str) -> None:
    report, expected = REPORTS[name]
    stored = after(recorded(**EARLIER), report)
    assert (stored.get("progress.stragglerMessage"), stored.get("progress.preflightMessage")) == expected


def test_a_restart_forgets_hosts_of_the_attempt_before() -> None:
    seen = observed(job(status=recorded(**EARLIER)), jobset=jobset(restarts=1))
    assert not status_of(decide(seen, SETTINGS)).keys() & EARLIER.keys()


def test_a_straggler_that_moves_is_written_at_intervals() -> None:
    """Each sample may find it at another line."""
    since = format_time(NOW - timedelta(seconds=5))
    status = recorded(step=7, stepTime=since, startTime=since, **EARLIER)
    status = after(status, {"straggler_message": BEHIND})
    assert after(status, {"straggler_message": "process 1, elsewhere"}) == status
    later = after(status, {"straggler_message": "process 1, elsewhere"}, now=NOW + timedelta(seconds=60))
    assert later["progress.stragglerMessage"] == "process 1, elsewhere"


def test_a_stall_names_the_straggler() -> None:
    since = format_time(NOW - timedelta(hours=1))
    status = recorded(step=7, stepTime=since, startTime=since)
    trainer = {"model": "tiny"}
    progress = progress_from_report({"phase": "training", "step": 7, "straggler_message": BEHIND})
    seen = observed(
        job(status=status, trainer=trainer, command=None, image=None), jobset=jobset(), hosts=BOTH, progress=progress
    )
    after = status_of(decide(seen, SETTINGS))
    assert condition(after, Type.STALLED) == ("True", "NoStep")
    assert BOTH[0].pod in after["message"]
    assert after["message"].endswith(f"Behind the others: {BEHIND}.")
