"""A run continues from the checkpoint of 0.1.0, which every later version must read."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.harness import processes

pytestmark = pytest.mark.processes

SAVED = Path(__file__).parent / "golden_checkpoint"
"""By two processes of four devices each: steps 1 to 25 of 50, and the losses of all 50."""


def test_run_continues_from_the_golden_checkpoint(tmp_path):
    with tarfile.open(SAVED / "checkpoints.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copytree(SAVED / "corpus", tmp_path / "corpus")
    block = {
        "model": {"layers": 2, "embedDim": 16, "heads": 2, "tieEmbeddings": True},
        "mesh": {"fsdp": 2, "tensor": 2},
        "data": {"path": f"{tmp_path}/corpus/*.parquet"},
        "steps": 50,
        "sequenceLength": 32,
        "batchSize": 8,
        "checkpoint": {"everySteps": 25, "keep": 50},
        "logEverySteps": 1,
        "compileCache": False,
    }
    with processes.start(
        tmp_path / "logs",
        processes=1,
        devices=8,
        config=block,
        checkpoint_dir=tmp_path / "checkpoints",
    ) as run:
        assert run.wait() == [0], run.explain()
    assert "Restored the checkpoint of step 25" in run[0].log
    told = {int(step): loss for step, loss in json.loads((SAVED / "losses.json").read_text()).items()}
    assert list(run[0].losses) == list(range(26, 51))
    # Losses near 5.7 are printed with four decimals.
    assert run[0].losses == pytest.approx({step: told[step] for step in range(26, 51)}, abs=2e-4)
