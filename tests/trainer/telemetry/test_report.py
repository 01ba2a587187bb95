import json

import pytest

from tests.fakes import Clock
from tpujob_trainer.telemetry.report import INITIAL, Report


def test_every_field_is_there_from_the_start():
    assert Report().snapshot().keys() == INITIAL.keys() | {"seconds"}


def test_facts_are_replaced_by_name():
    report = Report()
    report.update(step=3, loss=2.5)
    assert (report.snapshot()["step"], report.snapshot()["loss"]) == (3, 2.5)


def test_first_loss_is_kept():
    report = Report()
    for loss in (5.0, 4.0, 3.0):
        report.update(loss=loss)
    assert report.snapshot()["loss_first"] == 5.0


@pytest.mark.parametrize("name", ["losss", "phase", "seconds"])
def test_unknown_fact_is_refused(name):
    with pytest.raises(KeyError, match=name):
        Report().update(**{name: 1})


def test_time_belongs_to_the_phase_it_was_spent_in():
    clock = Clock(0.0)
    report = Report(clock)
    clock.now = 2.0
    report.enter("training")
    clock.now = 5.0
    with report.during("saving"):
        clock.now = 6.0
    clock.now = 10.0
    assert report.snapshot()["seconds"] == {"starting": 2.0, "training": 7.0, "saving": 1.0}


def test_phase_goes_on_after_an_inner_one():
    report = Report()
    report.enter("training")
    with report.during("saving"):
        assert report.snapshot()["phase"] == "saving"
    assert report.snapshot()["phase"] == "training"


def test_snapshot_is_json_and_a_copy():
    report = Report()
    snapshot = report.snapshot()
    snapshot["seconds"]["starting"] = -1
    assert json.loads(json.dumps(report.snapshot()))["seconds"]["starting"] >= 0
