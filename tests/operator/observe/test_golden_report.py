"""The report and the last report of 0.1.0 (tests/operator/observe/golden), which every later version must read."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_type_hints

from tpujob.local.reports import final_report as final_report_of_local_run
from tpujob_contract.reports.report import Report
from tpujob_operator.observe.report import Progress, final_report, progress_from_report, without_final_report

GOLDEN = Path(__file__).parent / "golden"
TRAINING = Progress(
    phase="training",
    step=30,
    steps=50,
    loss=2.5,
    tokens_per_second=8192.5,
    committed_step=25,
    committed_at=datetime(2030, 1, 1, 12, 0, tzinfo=UTC),
    is_checkpoint_healthy=True,
    is_data_healthy=True,
    data_wait_fraction=0.05,
    goodput={"step": 40, "restore": 4, "compile": 5, "start": 3},
)


def test_report_is_read_as_it_was_meant() -> None:
    assert progress_from_report(json.loads((GOLDEN / "report.json").read_text())) == TRAINING


def test_final_report_is_read_as_it_was_meant() -> None:
    message = (GOLDEN / "termination_message.txt").read_text()
    found = final_report(message)
    assert found is not None
    assert (found.phase, found.step, found.committed_step) == ("stopping", 30, 25)
    assert (found.is_checkpoint_healthy, found.checkpoint_message) == (False, "PUT gs://bucket/llama/30: 403")
    assert (found.is_data_healthy, found.data_message) == (False, "GET gs://bucket/corpus: 429")
    assert without_final_report(message) == "llama-w-0-0: stopped after step 30"


def test_command_line_reads_it_too() -> None:
    found = final_report_of_local_run(GOLDEN / "termination_message.txt")
    assert (found["phase"], found["step"], found["checkpoint"]) == ("stopping", 30, "gs://bucket/llama")


def test_no_field_has_gone() -> None:
    before = json.loads((GOLDEN / "report.json").read_text())
    assert before.keys() <= get_type_hints(Report).keys()
