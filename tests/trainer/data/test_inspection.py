"""What `tpujob data inspect` tells, computed by the trainer's own code."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from tests.trainer.data.parquet_files import take, write_groups
from tpujob_trainer.data import DataConfig, batches_digest, make_manifest, plan_lanes
from tpujob_trainer.data.inspection import inspect, is_slow_to_read


def inspected(path, **more):
    return inspect(DataConfig(path=str(path)), **{"batch_size": 2, "sequence_length": 16, **more})


def test_size_is_told(tmp_path):
    for number in range(16):
        write_groups(tmp_path / f"{number:02d}.parquet", [["hello world"] * 10, ["another text"] * 5])

    found = inspected(tmp_path)

    assert (found["files"], found["rows"], found["units"], found["lanes"]) == (16, 240, 32, 2)
    assert found["parts"]["count"] == 32
    assert found["sampled"]["rows"] == 240, "a small data set is counted whole"
    # Bytes, and a token before and after each row.
    assert found["tokens"] == 16 * (10 * 13 + 5 * 14)
    assert found["warnings"] == []
    assert json.loads(json.dumps(found)) == found


def test_tokens_of_rows_of_very_different_lengths_are_told_within_a_tenth(tmp_path):
    lengths = [10 ** (1 + (number * 7 % 40) / 10) for number in range(2000)]
    rows = ["x" * int(length) for length in lengths]
    write_groups(tmp_path / "a.parquet", [rows[start : start + 10] for start in range(0, 2000, 10)])

    assert inspected(tmp_path)["tokens"] == pytest.approx(sum(len(row) + 2 for row in rows), rel=0.1)


def test_first_batch_is_that_of_a_run(tmp_path):
    write_groups(tmp_path / "a.parquet", [[f"row-{row} of {group}" for row in range(20)] for group in range(20)])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config, batch_size=2)
    plan = plan_lanes(manifest, config, batch_size=2, seed=7)
    (batch,) = take(manifest, plan, 1, length=16)

    first = inspected(tmp_path, seed=7)["first_batch"]

    assert [row["tokens"] for row in first["rows"]] == batch.inputs.tolist()
    assert first["digest"] == batches_digest(batch.state)


def test_batch_of_many_passes_is_told_of_and_not_read(tmp_path):
    (tmp_path / "a.txt").write_text("one short text")

    found = inspected(tmp_path, batch_size=20_000, sequence_length=1024)

    assert found["first_batch"] is None
    # The text has 16 tokens: its bytes, and one before and after.
    words = "a batch of 20,000 x 1,024 tokens takes 1,280,000 passes over the 16 tokens of the data"
    assert [line for line in found["warnings"] if line.startswith(words)]
    assert found["batches_in_epoch"] == 0


@pytest.mark.parametrize(
    ("tokens", "units", "tokens_of_batch", "is_slow"),
    [(100, 1, 409_600, False), (100, 1, 409_601, True), (10**9, 8192, 2**20, False), (0, 1, 10**9, False)],
)
def test_batch_is_slow_to_read_from_4096_units(tokens, units, tokens_of_batch, is_slow):
    assert is_slow_to_read(tokens, units, tokens_of_batch) is is_slow


def few_row_groups(folder):
    write_groups(folder / "a.parquet", [[f"{number}: {'text ' * 2000}" for number in range(1000)]])


def useless_rows(folder):
    write_groups(folder / "a.parquet", [["text", None, "", "more"] * 10] * 16)


def zipped(folder):
    lines = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(100))
    for name in "abcdefghijklmnop":
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


@pytest.mark.parametrize(
    ("make", "warning"),
    [
        (few_row_groups, "2 lanes want 16 units and there are 1 row groups of up to 10 MB: they are cut"),
        (useless_rows, r"\d+ of \d+ sampled rows cannot be used: \d+ \(\d+\.\d%\) empty; \d+ \(\d+\.\d%\) null"),
        (zipped, "16 files, 'a.jsonl.gz' for one, cannot be read from their middle"),
    ],
    ids=["few row groups", "useless rows", "gzip"],
)
def test_what_would_hurt_is_said(tmp_path, make, warning):
    make(tmp_path)

    (line,) = inspected(tmp_path)["warnings"]

    assert re.match(warning, line)


def test_examples_are_rows_of_the_data(tmp_path):
    texts = [[f"row-{row} of {group}" for row in range(3)] for group in range(20)]
    write_groups(tmp_path / "a.parquet", texts)

    examples = inspected(tmp_path)["examples"]

    assert len(examples) == 3
    assert {example["text"] for example in examples} <= {text for group in texts for text in group}
    assert all(example["row"].startswith("a.parquet") for example in examples)
