"""A checkpoint, an attempt's report and a termination message of an earlier release are read as they were meant.

`earlier/` was made by the trainer before its modules had rooms: four steps of a tiny model on one CPU device, on the
text that lies there too.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tpujob_contract.reports.report import FINAL_FIELDS, split_final_report
from tpujob_operator.observe.report import final_report
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.telemetry import attempts

EARLIER = Path(__file__).parent / "earlier"


@pytest.fixture
def run(tmp_path):
    with tarfile.open(EARLIER / "run.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_last_report_reaches_the_operator(run):
    message = (run / "termination").read_text()
    words, found = split_final_report(message)
    assert words == ""
    assert tuple(json.loads(found or "")) == FINAL_FIELDS_THEN
    progress = final_report(message)
    assert progress is not None
    assert (progress.phase, progress.step, progress.committed_step) == ("finished", 4, 4)
    assert progress.is_checkpoint_healthy
    assert progress.goodput["compile"] > 0


FINAL_FIELDS_THEN = (
    "phase", "step", "steps", "loss", "goodput", "goodput_fraction", "committed_step", "committed_time",
    "checkpoint_failing_since", "checkpoint_message", "data_wait_fraction", "data_slow_message",
)  # fmt: skip


def test_final_reports_keep_what_they_had():
    assert set(FINAL_FIELDS_THEN) <= set(FINAL_FIELDS)


def test_attempt_is_found(run):
    report = attempts.latest(str(run / "checkpoints"))
    assert report is not None
    assert (report["phase"], report["step"], report["exit_code"]) == ("finished", 4, 0)
    assert layout.committed(run / "checkpoints") == [4]


@pytest.mark.processes
def test_run_goes_on_from_the_checkpoint(run):
    block = json.loads((run / "config.json").read_text())
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "TPUJOB_CONFIG": json.dumps({**block, "steps": 6}),
        "TPUJOB_CHECKPOINT_DIR": str(run / "checkpoints"),
        "TPUJOB_REPORT_PORT": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tpujob_trainer"], env=environment, cwd=run, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert "Step 4 goes on from the batches it was saved after" in done.stderr
    report = attempts.latest(str(run / "checkpoints"))
    assert report is not None
    assert (report["restored_from"], report["step"], report["committed_step"]) == (4, 6, 6)
