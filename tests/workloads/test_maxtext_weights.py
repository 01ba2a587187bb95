"""Weights go from MaxText to tpujob and back by MaxText's own converters, and every loss on the way is the same.

`make maxtext` installs MaxText into .cache/maxtext first. The models have published architectures, and are small.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tests.workloads.maxtext_job import PYTHON, TINY
from tests.workloads.test_maxtext import ROOT, base  # noqa: F401 - a fixture

WORDS, LENGTH, ROWS = 512, 32, 4
LIKE_PUBLISHED = {
    **TINY,
    "override_model_config": "true",
    "base_num_query_heads": 4,
    "base_num_decoder_layers": 2,
    "vocab_size": WORDS,
    "max_target_length": LENGTH,
    "per_device_batch_size": ROWS,
    "dtype": "float32",
    "weight_dtype": "float32",
    "matmul_precision": "highest",
    "skip_jax_distributed_system": "true",
}
SYNTHETIC = (
    "import jax, json; jax.config.update('jax_default_prng_impl', 'unsafe_rbg'); "
    f"print(json.dumps(jax.random.randint(jax.random.PRNGKey(0), ({ROWS}, {LENGTH + 1}), 0, {WORDS}).tolist()))"
)
"""The batch that MaxText's `dataset_type: synthetic` repeats."""
TOLERANCE = 2e-6
"""Relative; both compute in float32."""

pytestmark = [pytest.mark.maxtext, pytest.mark.timeout(1800)]


@pytest.fixture
def maxtext(base: str, model: str) -> Any:  # noqa: F811
    """Runs a module of MaxText with a small model of an architecture."""

    def run(*program: str, flags: tuple[str, ...] = (), **settings: Any) -> str:
        given = [f"{key}={value}" for key, value in ({"model_name": model} | LIKE_PUBLISHED | settings).items()]
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
        done = subprocess.run(
            [PYTHON, *program, base, *given, *flags], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


def losses(metrics: Path) -> list[float]:
    """Of each step, with all digits."""
    return [json.loads(line)["learning/loss"] for line in metrics.read_text().splitlines()]


def score(folder: Path, name: str, model: Path) -> float:
    """The mean loss that the trainer computes of the rows with a model."""
    trainer = {
        "task": "score",
        "model": {"from": str(model)},
        "data": {"path": str(folder / "rows.parquet"), "tokensColumn": "ids", "tokenizer": str(model)},
        "sequenceLength": 2 * LENGTH,
        "score": {},
    }
    tpujob_run(folder, name, {"workers": 1, "checkpointDir": str(folder / name), "trainer": trainer})
    found = [pq.read_table(file)["loss"].to_pylist() for file in (folder / name / "out").glob("*.parquet")]
    [of_rows] = found
    assert len(of_rows) == ROWS
    return float(sum(of_rows) / ROWS)


def tpujob_run(folder: Path, name: str, spec: dict[str, Any]) -> None:
    job = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": name}}
    (folder / f"{name}.yaml").write_text(json.dumps(job | {"spec": {"accelerator": "cpu:1x1", **spec}}))
    done = subprocess.run(
        [ROOT / ".venv/bin/tpujob", "run", f"{name}.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def write_rows(folder: Path) -> Path:
    """The batch that MaxText repeats, as rows of token ids; returns the folder of their tokenizer."""
    batch = subprocess.run([PYTHON, "-c", SYNTHETIC], capture_output=True, text=True, check=True).stdout
    pq.write_table(pa.table({"ids": json.loads(batch.splitlines()[-1])}), folder / "rows.parquet")
    words = folder / "words"
    words.mkdir()
    vocabulary = {"<s>": WORDS - 2, "</s>": WORDS - 1} | {f"w{number}": number for number in range(WORDS - 2)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="w0")
    (words / "tokenizer.json").write_text(tokenizers.Tokenizer(model).to_str())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (words / "tokenizer_config.json").write_text(json.dumps(settings))
    return words


def train_here(folder: Path, model: Path, export: Path) -> None:
    trainer = {
        "model": {"from": str(model)},
        "data": {"path": str(folder / "rows.parquet"), "tokensColumn": "ids", "tokenizer": str(model)},
        "sequenceLength": LENGTH,
        "batchSize": ROWS,
        "steps": 5,
        "optimizer": {"learningRate": 0.01},
        "export": {"dtype": "float32", "directory": str(export)},
    }
    tpujob_run(folder, "here", {"checkpointDir": str(folder / "here"), "trainer": trainer})


def without_layer_types(folder: Path) -> None:
    """MaxText writes those of the published model, which has more layers than this one."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("model", ["llama3.1-8b", "qwen3-8b"])
def test_losses_are_the_same_on_both_sides(tmp_path: Path, maxtext: Any) -> None:
    words, converted, export = write_rows(tmp_path), tmp_path / "from-maxtext", tmp_path / "trained-here"
    train = ("-m", "maxtext.trainers.pre_train.train")
    run = {"run_name": "there", "base_output_directory": tmp_path, "metrics_file": tmp_path / "there.jsonl"}
    maxtext(*train, steps=5, checkpoint_period=1, learning_rate=0.01, **run)
    maxtext(
        *("-m", "maxtext.checkpoint_conversion.to_huggingface"),
        load_parameters_path=tmp_path / "there" / "checkpoints" / "3" / "items",
        base_output_directory=converted,
        scan_layers="true",
        flags=("--override_model_architecture", f"--hf_model_path={words}"),
    )
    without_layer_types(converted)
    # The loss of a step is that of the weights that the step before left.
    there = losses(tmp_path / "there.jsonl")[4]
    assert score(tmp_path, "score-there", converted) == pytest.approx(there, rel=TOLERANCE)

    train_here(tmp_path, converted, export)
    here = score(tmp_path, "score-here", export)
    assert here < there / 1.5

    maxtext(
        str(ROOT / "tests" / "workloads" / "to_maxtext.py"),
        str(export),
        base_output_directory=tmp_path / "to-maxtext",
        scan_layers="true",
        flags=(f"--hf_model_path={export}", "--eager_load_method=safetensors"),
    )
    run = {"run_name": "back", "base_output_directory": tmp_path, "metrics_file": tmp_path / "back.jsonl"}
    maxtext(*train, steps=1, load_parameters_path=tmp_path / "to-maxtext" / "0" / "items", **run)
    assert losses(tmp_path / "back.jsonl")[0] == pytest.approx(here, rel=TOLERANCE)
