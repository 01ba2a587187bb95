"""The model, the loss and the optimizer of docs/own-model.md train, are saved, restored, evaluated, and write."""

import csv
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.harness import attempt_reports
from tests.trainer.train.test_step import make_batch
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.custom_model import CustomModel, custom_shape
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.token_loss import TokenLoss

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
    assert sorted(FILES) == [
        "my_functions.py",
        "my_linen_model.py",
        "my_loss.py",
        "my_metrics.py",
        "my_model.py",
        "my_optimizer.py",
    ]
    assert all(len(text.strip().splitlines()) <= 45 for text in FILES.values())


@pytest.mark.parametrize("custom", ["my_linen_model:Bigrams", "my_functions:make"])
def test_other_forms_are_made(custom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That such forms train and compute the same is in tests/trainer/model/test_custom_model.py."""
    name = custom.partition(":")[0]
    (tmp_path / f"{name}.py").write_text(FILES[f"{name}.py"])
    monkeypatch.syspath_prepend(tmp_path)
    shape = custom_shape(ModelConfig(custom=custom, arguments={"width": 16}), vocabulary=128, platform="cpu")
    assert shape.num_parameters == 2 * 128 * 16 + 128
    loss = TokenLoss(CustomModel(shape, build_mesh(slices=1, devices=jax.devices()[:1])))
    weights = loss.model.init(0)
    found = loss.total(weights, make_batch(), jax.random.key(0)) / make_batch().loss_mask.sum()
    # Of a model that knows nothing, the logarithm of 128 ids.
    assert float(found) == pytest.approx(math.log(128), abs=0.05)


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
        report = attempt_reports.latest(str(tmp_path / "checkpoints"))
        assert report is not None
        assert (report["restored_from"], report["step"], report["committed_step"]) == (restored, steps, steps)
    assert report is not None
    # The logarithm of 384 ids is 5.9: what a model that learned nothing has.
    assert report["evaluation_loss"] < 4.5
    with (tmp_path / "checkpoints" / "metrics.csv").open() as file:
        assert 0 < float(list(csv.DictReader(file))[-1]["evaluation/top1"]) <= 1
    assert json.loads((tmp_path / "checkpoints" / "samples.jsonl").read_text().splitlines()[-1])["text"]
