"""`job.trackers` in two real processes: what process 0 writes, over two attempts, and what is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.processes import Run, start
from tests.trainer.telemetry import wandb_files
from tpujob_contract import ExitCode

pytestmark = pytest.mark.processes
LOOP = str(Path(__file__).parent / "tracked_loop.py")


def attempt(folder: Path, number: int, **extra: str) -> Run:
    environment: dict[str, Any] = {
        "ATTEMPT": str(number),
        "WANDB_MODE": "offline",
        "TPUJOB_CONFIG": "",
        **extra,
    }
    return start(
        folder / f"attempt-{number}",
        processes=2,
        devices=1,
        config={},
        checkpoint_dir=folder / "checkpoints",
        attempt=number,
        program=(LOOP,),
        extra=environment,
    )


def test_two_attempts_are_one_run_in_files_that_only_process_0_writes(tmp_path: Path) -> None:
    for number, steps in ((1, 4), (2, 6)):
        with attempt(tmp_path, number, STEPS=str(steps)) as run:
            assert run.wait() == [0, 0], run.explain()
        assert "tracker" not in run[1].log
    checkpoints = tmp_path / "checkpoints"
    with (checkpoints / "metrics.csv").open() as file:
        rows = [(int(row["step"]), float(row["train/loss"]), float(row["attempt"])) for row in csv.DictReader(file)]
    expected = [(step, 1 / step, 1 if step <= 4 else 2) for step in range(1, 7)]
    np.testing.assert_allclose(rows, expected)
    samples = [json.loads(line) for line in (checkpoints / "samples.jsonl").read_text().splitlines()]
    assert [(each["step"], each["text"]) for each in samples] == [(4, "a text of step 4"), (6, "a text of step 6")]

    runs = sorted((checkpoints / "wandb").glob("offline-run-*/run-*.wandb"))
    (run_id,) = {path.stem.removeprefix("run-") for path in runs}
    assert json.loads((checkpoints / "wandb.json").read_text()) == {"id": run_id}
    assert {step for path in runs for step in wandb_files.steps(path.read_bytes())} == {1, 2, 3, 4, 5, 6}
    config = wandb_files.config(runs[0].read_bytes())
    assert (config["width"], config["numDevices"], len(config["hosts"])) == (8, 2, 2)
    assert list((checkpoints / "tensorboard").glob("events.*"))


def test_second_call_is_refused(tmp_path: Path) -> None:
    with attempt(tmp_path, 1, STEPS="2", AGAIN="yes") as run:
        assert run.wait() == [ExitCode.CONFIGURATION] * 2, run.explain()
    assert "job.trackers: was called before; call it once" in run[0].termination_message
