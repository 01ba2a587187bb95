"""What `tpujob check --data` says beforehand is what a real run writes, within a tenth."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.processes import COMPILED_ONCE
from tpujob.commands.from_folder import folder_to_parquet

pytestmark = pytest.mark.processes

ROWS = 1000
TOLERANCE = 0.1
MODEL = {"layers": 2, "embedDim": 64, "heads": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Lines of real text, of many lengths, a hundredth of them of no use."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [line for line in Path(argparse.__file__).read_text().splitlines() if line.strip()][:ROWS]
    table = pa.table({"text": [None if number % 100 == 7 else line for number, line in enumerate(lines)]})
    pq.write_table(table, folder / "rows.parquet", row_group_size=100)
    return str(folder)


def tpujob(folder: Path, *arguments: str) -> dict[str, Any]:
    """The last object that a command prints."""
    command = [sys.executable, "-m", "tpujob", *arguments, "-o", "json"]
    environment = {**os.environ, **COMPILED_ONCE}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout if arguments[0] == "check" else done.stdout.splitlines()[-1])
    return found


def job(folder: Path, trainer: dict[str, Any], **spec: Any) -> Path:
    file = folder / "job.yaml"
    metadata = {"name": "job"}
    spec = {"checkpointDir": str(folder / "output"), "trainer": trainer, **spec}
    kind = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob"}
    file.write_text(json.dumps({**kind, "metadata": metadata, "spec": spec}))
    return file


def bytes_below(folder: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in folder.glob(pattern) if file.is_file())


@pytest.mark.parametrize(
    ("dtype", "file_format", "compression", "positions"),
    [("float16", "parquet", "zstd", "all"), ("int8", "arrow", "none", "mean")],
)
def test_extraction_writes_what_was_forecast(
    tmp_path: Path, corpus: str, dtype: str, file_format: str, compression: str, positions: str
) -> None:
    extract = {
        "layers": ["0-1"],
        "keep": ["residual", "attention"],
        "dtype": dtype,
        "format": file_format,
        "compression": compression,
        "positions": positions,
        "buckets": 2,
    }
    trainer = {
        "task": "extract",
        "model": MODEL,
        "data": {"path": corpus},
        "sequenceLength": 128,
        "batchSize": 8,
        "extract": extract,
    }
    file = job(tmp_path, trainer, accelerator="cpu:1x1", workers=1)
    forecast = tpujob(tmp_path, "check", str(file), "--data")["forecast"]

    tpujob(tmp_path, "run", str(file))

    status = tpujob(tmp_path, "extract", "status", str(tmp_path / "output"))
    assert status["rows"] == ROWS * 99 // 100
    assert forecast["rows_used"] == pytest.approx(status["rows"], rel=TOLERANCE)
    assert forecast["tokens"] == pytest.approx(status["tokens"], rel=TOLERANCE)
    assert forecast["output_bytes"] == pytest.approx(bytes_below(tmp_path, "output/out/**/*"), rel=TOLERANCE)


def test_training_writes_what_was_forecast(tmp_path: Path) -> None:
    folder_to_parquet(Path(json.__file__).parent, tmp_path / "text", include=("*.py",))
    trainer = {
        "model": MODEL,
        "data": {"path": str(tmp_path / "text"), "tokenizer": "bytes"},
        "sequenceLength": 64,
        "batchSize": 8,
        "steps": 60,
        "checkpoint": {"keep": 1},
    }
    file = job(tmp_path, trainer, accelerator="cpu:1x1")
    forecast = tpujob(tmp_path, "check", str(file), "--data")["forecast"]

    tpujob(tmp_path, "run", str(file))

    texts = pq.read_table(tmp_path / "text").column("text").to_pylist()
    # A byte is a token, and each document has one at its beginning and one at its end.
    tokens = sum(len(text.encode()) + 2 for text in texts)
    assert forecast["tokens_in_data"] == pytest.approx(tokens, rel=TOLERANCE)
    assert forecast["passes"] == pytest.approx(60 * 8 * 64 / tokens, rel=TOLERANCE)
    assert forecast["output_bytes"] == pytest.approx(bytes_below(tmp_path, "output/steps/**/*"), rel=TOLERANCE)
