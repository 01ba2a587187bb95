import json
from pathlib import Path
from typing import Any

import pytest

from tpujob_trainer.telemetry.goodput import FILE, Goodput, fraction, of_attempt
from tpujob_trainer.telemetry.report import Report

REPORT: dict[str, Any] = {
    "step": 30,
    "committed_step": 20,
    "restored_from": 10,
    "attempt_steps": 20,
    "lost_steps": 0,
    "data_wait_seconds": 2.0,
    "seconds": {"starting": 3.0, "restoring": 4.0, "compiling": 5.0, "training": 42.0, "saving": 6.0, "finished": 1.0},
}


@pytest.mark.parametrize(
    ("changes", "is_over", "step", "lost"),
    [
        pytest.param({}, False, 40.0, 0.0, id="it runs"),
        pytest.param({}, True, 20.0, 20.0, id="killed"),
        pytest.param({"committed_step": 30}, True, 40.0, 0.0, id="all committed"),
        pytest.param({"committed_step": 31}, True, 40.0, 0.0, id="more than was reported"),
        pytest.param({"committed_step": None}, True, 0.0, 40.0, id="no commit"),
        pytest.param({"committed_step": None, "attempt_steps": 40}, True, 20.0, 20.0, id="no commit after a restore"),
        pytest.param(
            {"committed_step": None, "restored_from": None, "step": 20}, True, 0.0, 40.0, id="from the beginning"
        ),
        pytest.param({"lost_steps": 5}, False, 30.0, 10.0, id="went back"),
        pytest.param({"lost_steps": 25}, False, 0.0, 40.0, id="went back further than it began"),
        pytest.param({"attempt_steps": 0, "step": 10, "committed_step": 10}, True, 40.0, 0.0, id="no step"),
    ],
)
def test_steps_after_the_last_commit_are_lost_when_it_is_over(changes, is_over, step, lost):
    spent = of_attempt(REPORT | changes, is_over=is_over)
    assert (spent["step"], spent["lost_steps"]) == (step, lost)
    assert spent["data_wait"] == 2.0
    assert sum(spent.values()) == sum(REPORT["seconds"].values()), "no second is lost or counted twice"


def test_fraction_is_of_all_time():
    assert fraction(of_attempt(REPORT, is_over=False)) == pytest.approx(40 / 61)
    assert fraction(dict.fromkeys(("step", "start"), 0.0)) is None


def report(**facts):
    now = [0.0]
    made = Report(lambda: now[0])
    made.enter("training")
    now[0] = 10.0
    made.update(**facts)
    return made


def test_the_account_goes_on_over_attempts(tmp_path: Path):
    first = Goodput(
        str(tmp_path), report(step=10, committed_step=6, attempt_steps=10), keeps_file=True, clock=lambda: 1000.0
    )
    first.close()
    exit_callback = (tmp_path / FILE).read_text()
    second_report = report(step=8, restored_from=6, committed_step=8, attempt_steps=2)
    # Ten seconds old by then, as its report says: the attempts are 7.5 s apart.
    second = Goodput(str(tmp_path), second_report, keeps_file=True, clock=lambda: 1017.5)
    second.close()
    told = second_report.snapshot()
    assert sum(told["goodput"].values()) == 27.5
    assert told["goodput"]["step"] == 6.0 + 10.0
    assert told["goodput"]["lost_steps"] == 4.0
    assert told["goodput"]["between_attempts"] == 7.5
    assert told["goodput_fraction"] == pytest.approx(16 / 27.5)
    assert json.loads((tmp_path / FILE).read_text())["attempts"] == 2
    assert json.loads(exit_callback)["attempts"] == 1


@pytest.mark.parametrize("content", ["{", "[" * 9000, '{"seconds": 1}', '{"seconds": [1]}'], ids=len)
def test_a_broken_file_starts_a_new_account(tmp_path: Path, caplog, content: str):
    (tmp_path / FILE).write_text(content)
    told = report(step=1, attempt_steps=1)
    Goodput(str(tmp_path), told, keeps_file=True).close()
    assert told.snapshot()["goodput"]["step"] == 10.0
    assert "the account begins anew" in caplog.text


def test_others_keep_no_file(tmp_path: Path):
    told = report(step=1, attempt_steps=1)
    Goodput(str(tmp_path), told, keeps_file=False).close()
    assert told.snapshot()["goodput"]["step"] == 10.0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("restored", "attempt_steps", "lost"), [(10, 10, 0.0), (12, 10, 0.0), (6, 10, 4.0), (0, 10, 10.0), (2, 0, 0.0)]
)
def test_steps_after_an_older_checkpoint_are_lost(tmp_path: Path, restored: int, attempt_steps: int, lost: float):
    made = report(step=10, committed_step=10, attempt_steps=attempt_steps)
    Goodput(str(tmp_path), made, keeps_file=True, clock=lambda: 0.0).close()
    second = Goodput(str(tmp_path), Report(lambda: 0.0), keeps_file=True, clock=lambda: 0.0)
    second.restored(restored)
    second.close()
    assert second.tell()["lost_steps"] == pytest.approx(lost)


def test_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog):
    (tmp_path / FILE).mkdir()
    account = Goodput(str(tmp_path), report(step=1, attempt_steps=1), keeps_file=True)
    account.close()
    account.close()
    assert caplog.text.count(f"Cannot write {FILE}") == 1


def test_start_from_nothing_loses_nothing_more(tmp_path: Path):
    """Without a commit all steps are lost already."""
    Goodput(str(tmp_path), report(step=10, attempt_steps=10), keeps_file=True, clock=lambda: 1.0).close()
    again = report(step=4)
    goodput = Goodput(str(tmp_path), again, keeps_file=True, clock=lambda: 1.0)
    goodput.restored(0)
    goodput.close()
    assert again.snapshot()["goodput"]["lost_steps"] == 10.0


def test_seconds_are_kept_to_the_millisecond(tmp_path: Path):
    told = report(step=1, attempt_steps=1, data_wait_seconds=1.23456)
    Goodput(str(tmp_path), told, keeps_file=True, clock=lambda: 1.0).close()
    assert told.snapshot()["goodput"]["data_wait"] == 1.235
