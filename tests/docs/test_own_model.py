"""The model, the loss and the optimizer of docs/own-model.md train, are saved, restored, evaluated, and write."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpujob_trainer.telemetry import attempts

PAGE = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
BLOCK = {
    "model": {"custom": "my_model:Decoder", "arguments": {"width": 32, "heads": 2, "layers": 1, "length": 32}},
    "loss": "my_loss:loss",
    "optimizer": {"custom": "my_optimizer:make", "arguments": {"momentum": 0.9}, "learningRate": 3e-3},
    "data": {"path": "text.txt"},
    "sequenceLength": 32,
    "batchSize": 8,
    "logEverySteps": 1,
    "evaluation": {"everySteps": 20, "batches": 1, "metrics": [{"name": "my_metrics:top1"}]},
    "sample": {"prompt": "tick ", "tokens": 4, "temperature": 0},
}


def test_each_example_is_short() -> None:
    assert sorted(FILES) == ["my_loss.py", "my_metrics.py", "my_model.py", "my_optimizer.py"]
    assert all(len(text.strip().splitlines()) <= 45 for text in FILES.values())


@pytest.mark.processes
def test_examples_train_and_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "text.txt").write_text("tick tock " * 400)
    for steps, restored in ((20, None), (30, 20)):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "2",
            "TPUJOB_CONFIG": json.dumps({**BLOCK, "steps": steps}),
            "TPUJOB_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            "TPUJOB_REPORT_PORT": "0",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tpujob_trainer"], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        report = attempts.latest(str(tmp_path / "checkpoints"))
        assert report is not None
        assert (report["restored_from"], report["step"], report["committed_step"]) == (restored, steps, steps)
    assert report is not None
    # The logarithm of 384 ids is 5.9: what a model that learned nothing has.
    assert report["evaluation_loss"] < 4.5
    with (tmp_path / "checkpoints" / "metrics.csv").open() as file:
        assert 0 < float(list(csv.DictReader(file))[-1]["evaluation/top1"]) <= 1
    assert json.loads((tmp_path / "checkpoints" / "samples.jsonl").read_text().splitlines()[-1])["text"]
