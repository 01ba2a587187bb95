"""examples/14-fine-tune-and-serve.yaml: what two processes learn by LoRA, transformers answers from the export alone.

`make pytorch` installs transformers into .cache/reference first, where tpujob is not. The model has the shape of the
published one and random weights, and its tokenizer was made for the test: nothing is downloaded.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.workloads.example_run import ROOT
from tests.workloads.test_pytorch import PYTHON

EXAMPLE = ROOT / "examples" / "14-fine-tune-and-serve.yaml"
CHATS = ROOT / "examples" / "fine-tune" / "chats.jsonl"
ANSWER = ROOT / "examples" / "fine-tune" / "answer.py"

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(1800)]


def test_an_export_answers_as_it_was_taught(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("transformers is not installed; `make pytorch` does it")
    model, export = tmp_path / "model", tmp_path / "fine-tuned"
    subprocess.run([PYTHON, "-m", "tests.workloads.make_chat_model", model, CHATS], cwd=ROOT, check=True)
    changes = {
        "accelerator": "cpu:2x1",
        "checkpointDir": str(tmp_path / "checkpoints"),
        "trainer.model.from": str(model),
        "trainer.data.path": str(CHATS),
        "trainer.data.tokenizer": str(model),
        "trainer.export.directory": str(export),
        # Fewer tokens in a step than the example has: two processors need minutes for it.
        "trainer.batchSize": "2",
        "trainer.sequenceLength": "64",
        "trainer.sample.tokens": "24",
    }
    sets = [f"--set=spec.{key}={value}" for key, value in changes.items()]

    run = subprocess.run(
        [ROOT / ".venv/bin/tpujob", "run", EXAMPLE, *sets], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    chats = [json.loads(line)["messages"] for line in CHATS.read_text().splitlines()]
    assert f"<|im_start|>assistant\n{chats[0][1]['content']}" in run.stdout
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    for asked, answer in chats:
        told = subprocess.run(
            [PYTHON, ANSWER, export, asked["content"]],
            cwd=tmp_path,
            env={**clean, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == answer["content"]
