"""Progress is written at intervals, all else at once; and each change of phase or reason has its Event."""

from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, ended, host, job, jobset, observed, recorded, status_of
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.apply import event
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.report import Progress, UnitCounts
from tpujob_operator.observe.state import Observed
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
MOVING: dict[str, Any] = {"goodput": {"training": 5}, "data_wait_fraction": 0.5}
WHOLE = Progress(
    phase="training",
    step=8,
    steps=99,
    loss=1.5,
    tokens_per_second=5.0,
    committed_step=8,
    committed_at=NOW,
    units=UnitCounts(total=9, done=4),
    **MOVING,
)


def running(seconds: float, *, status: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """A job that is at step 8 so many seconds after step 7 was written."""
    before = status_of(decide(observed(job(status=recorded()), jobset=jobset(), hosts=BOTH), SETTINGS))
    known = {
        **before,
        "step": 7,
        "progress.stepTime": format_time(NOW),
        "startTime": format_time(NOW),
        **(status or {}),
    }
    values: dict[str, Any] = {"jobset": jobset(), "hosts": BOTH, "progress": Progress(phase="training", step=8)}
    return observed(job(status=known), **{**values, "now": NOW + timedelta(seconds=seconds), **fields})


WRITES = {
    # name: (what is seen, whether something is written)
    "soon": (running(10), False),
    "after the interval": (running(30), True),
    "after the interval but for a part of a second": (running(29), True),
    "before the interval is over": (running(28.9), False),
    "all of a report, soon": (running(10, progress=WHOLE), False),
    "all of a report, after the interval": (running(30, progress=WHOLE), True),
    "what always moves, after the interval": (
        running(30, progress=Progress(phase="training", step=7, **MOVING)),
        False,
    ),
    "a step whose time is not known": (running(10, status={"progress.stepTime": None}), True),
    "the first step": (running(10, status={"step": None}), True),
    "a checkpoint, soon": (running(10, progress=Progress(phase="saving", step=7, committed_step=7)), False),
    "another phase": (running(10, hosts=(host(0),), ended=(ended(1, 1),)), True),
    "saves fail": (
        running(10, progress=Progress(phase="training", is_checkpoint_healthy=False, checkpoint_failing_since=NOW)),
        True,
    ),
}


@pytest.mark.parametrize(("seen", "is_written"), WRITES.values(), ids=WRITES.keys())
def test_only_progress_waits_for_its_turn(seen: Observed, is_written: bool) -> None:
    assert bool(decide(seen, SETTINGS).patch) is is_written


def test_whatever_waited_is_written_with_the_next_change() -> None:
    seen = running(10, hosts=(host(0),), ended=(ended(1, 1),))
    assert status_of(decide(seen, SETTINGS))["step"] == 8


EVENTS = {
    # name: (what is seen, reason of the Event and whether it is a warning)
    "nothing new": (running(30), None),
    "running for the first time": (
        observed(job(status=recorded("Starting")), jobset=jobset(), hosts=BOTH),
        ("AllHostsReady", False),
    ),
    "restarting": (running(10, hosts=(host(0),), ended=(ended(1, 1),)), ("Restarting", True)),
    "succeeded": (running(10, jobset=jobset(outcome="Completed", outcome_at=NOW)), ("Finished", False)),
    "failed": (running(10, ended=(ended(1, 78),)), ("HostFailed", True)),
}


@pytest.mark.parametrize(("seen", "expected"), EVENTS.values(), ids=EVENTS.keys())
def test_changes_of_phase_have_an_event(seen: Observed, expected: tuple[str, bool] | None) -> None:
    note = decide(seen, SETTINGS).note
    assert (None if note is None else (note.reason, note.warning)) == expected


def test_change_of_the_reason_alone_has_an_event() -> None:
    created = observed(job())
    first = decide(created, SETTINGS)
    refused = observed(job(status=dict(first.status)), jobset_refusal="exceeded quota")
    note = decide(refused, SETTINGS).note
    assert note is not None
    assert (note.reason, note.warning) == ("JobSetRefused", True)


def test_event_of_a_repeated_write_is_the_same() -> None:
    seen = running(10, ended=(ended(1, 78),))
    note = decide(seen, SETTINGS).note
    assert note is not None
    names = {event(dict(seen.manifest), note, NOW + timedelta(seconds=s))["metadata"]["name"] for s in (0, 9)}
    assert len(names) == 1
