import datetime

from tests.harness.attempt_reports import latest
from tpujob_trainer.telemetry import report

STARTED = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def attempt(folder, attempt_id="1.0-9f3a01bc", started=STARTED, is_lead=True):
    return report.Attempt(str(folder), attempt_id=attempt_id, started=started, is_lead=is_lead)


def test_name_sorts_by_time_and_ends_with_the_nonce(tmp_path):
    attempt(tmp_path).write({"step": 1})
    assert [p.name for p in (tmp_path / "attempts").iterdir()] == ["20300102T030405Z-9f3a01bc.json"]


def test_running_attempt_has_no_exit_code(tmp_path):
    attempt(tmp_path).write({"step": 1})
    assert latest(tmp_path) == {"step": 1, "exit_code": None}


def test_ending_replaces_the_beginning(tmp_path):
    one = attempt(tmp_path)
    one.write({"step": 1})
    one.write({"step": 9}, exit_code=75)
    assert latest(tmp_path) == {"step": 9, "exit_code": 75}


def test_only_the_lead_writes(tmp_path):
    attempt(tmp_path, is_lead=False).write({"step": 1})
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place_is_a_warning(tmp_path, caplog):
    (tmp_path / "attempts").write_text("a file")
    attempt(tmp_path).write({"step": 1})
    assert "Cannot write the attempt's report" in caplog.text
