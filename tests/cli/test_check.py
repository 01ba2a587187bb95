"""`tpujob check`: the sums, from the trainer's own arithmetic."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpujob.main import app
from tpujob_contract import ExitCode

HEAD = "apiVersion: tpujob.dev/v1alpha1\nkind: TpuTrainingJob\nmetadata: {name: job}\n"
LLAMA = {"model": {"preset": "llama3-8b"}, "data": {"path": "gs://b/x", "tokenizer": "gs://b/t"}, "tokens": 20e9}


def check(folder: Path, *options: str, **spec: object) -> tuple[int, str]:
    file = folder / "job.yaml"
    file.write_text(HEAD + "spec: " + json.dumps(spec))
    done = CliRunner().invoke(app, ["check", str(file), *options])
    return done.exit_code, done.output


def test_the_sums_of_a_large_run(tmp_path: Path) -> None:
    code, text = check(tmp_path, accelerator="v5e-256", slices=2, trainer=LLAMA, checkpointDir="gs://bucket/c")
    assert code == 0, text
    assert "2 slices of v5e-256: topology 16x16, 128 hosts (ct5lp-hightpu-4t), 512 chips" in text
    assert "model: 8,030.3 M parameters" in text
    assert "4,769 steps of 512 x 8,192 tokens" in text
    # 8.03e9 parameters of 12 bytes over 512 chips.
    assert "weights and optimizer take 0.18 of 16 GiB" in text
    assert "warning" not in text


def test_json_has_the_same_facts(tmp_path: Path) -> None:
    code, text = check(tmp_path, "-o", "json", accelerator="v5p-128", trainer=LLAMA, checkpointDir="gs://bucket/c")
    assert code == 0, text
    facts = json.loads(text)
    assert (facts["chips"], facts["hosts"], facts["trainer"]["parameters"]) == (64, 16, 8_030_261_248)
    low, high = facts["trainer"]["hours"]
    # 6 operations for each parameter and token are most of the work.
    assert 6 * 8.03e9 * 20e9 / (459e12 * 64 * 0.5) / 3600 < low < high < 2 * low


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"accelerator": "v5e-16", "trainer": LLAMA}, "warning: spec.checkpointDir: is missing"),
        (
            {"accelerator": "v5e-8", "trainer": {**LLAMA, "data": {"path": "my-data/x", "tokenizer": "bytes"}}},
            "'my-data/x' is relative",
        ),
        ({"accelerator": "v5e-16", "trainer": LLAMA, "capacity": {"spot": True}}, "spot machines give 30"),
    ],
    ids=["nothing is saved", "a relative path", "more grace than there is"],
)
def test_what_is_doubtful_is_a_warning(tmp_path: Path, spec: dict, words: str) -> None:
    code, text = check(tmp_path, **spec)
    assert code == 0, text
    assert words in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 5}, "excludes steps"),
        ({"tokens": None}, "tokens"),
        ({"batchSize": 100}, "spec.trainer.batchSize: 100 rows do not divide over 16 devices"),
        ({"optimizer": {"warmupSteps": 10**6}}, "spec.trainer.optimizer.warmupSteps"),
        ({"model": {"preset": "llama3-8b", "kvHeads": 3}}, "kvHeads"),
        ({"data": {"path": "gs://b/x"}}, "spec.trainer.data.tokenizer: required"),
    ],
    ids=["steps and tokens", "neither", "rows that do not divide", "warm-up", "heads", "no tokenizer"],
)
def test_contradictions_are_refused_by_name(tmp_path: Path, changes: dict, words: str) -> None:
    block = {key: value for key, value in (LLAMA | changes).items() if value is not None}
    code, text = check(tmp_path, accelerator="v5e-16", trainer=block, checkpointDir="gs://bucket/c")
    assert code == ExitCode.CONFIGURATION, text
    assert words in text
