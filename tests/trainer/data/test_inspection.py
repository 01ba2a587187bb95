"""What `tpujob data inspect` tells, computed by the trainer's own code."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from tests.trainer.data.parquet_files import take, write_groups
from tpujob_trainer.data import DataConfig, batches_digest, make_manifest, plan_lanes
from tpujob_trainer.data.inspection import inspect


def inspected(path, **more):
    return inspect(DataConfig(path=str(path)), **{"batch_size": 2, "sequence_length": 16, **more})


def test_size_is_told(tmp_path):
    for number in range(16):
        write_groups(tmp_path / f"{number:02d}.parquet", [["hello world"] * 10, ["another text"] * 5])

    found = inspected(tmp_path)

    assert (found["files"], found["rows"], found["units"], found["lanes"]) == (16, 240, 32, 2)
    assert found["parts"]["count"] == 32
    assert 8 * 5 <= found["sampled"]["rows"] <= 8 * 10
    # Bytes, and a token before and after each row.
    assert found["tokens"] == pytest.approx(16 * (10 * 13 + 5 * 14), rel=0.05)
    assert found["warnings"] == []
    assert json.loads(json.dumps(found)) == found


def test_first_batch_is_that_of_a_run(tmp_path):
    write_groups(tmp_path / "a.parquet", [[f"row-{row} of {group}" for row in range(20)] for group in range(20)])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config, batch_size=2)
    plan = plan_lanes(manifest, config, batch_size=2, seed=7)
    (batch,) = take(manifest, plan, 1, length=16)

    first = inspected(tmp_path, seed=7)["first_batch"]

    assert [row["tokens"] for row in first["rows"]] == batch.inputs.tolist()
    assert first["digest"] == batches_digest(batch.state)


def few_row_groups(folder):
    write_groups(folder / "a.parquet", [["text"] * 1000])


def useless_rows(folder):
    write_groups(folder / "a.parquet", [["text", None, "", "more"] * 10] * 16)


def zipped(folder):
    lines = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(100))
    for name in "abcdefghijklmnop":
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


@pytest.mark.parametrize(
    ("make", "warning"),
    [
        (few_row_groups, "2 lanes want 16 units and there are 1 row groups of up to 0 MB: they are cut"),
        (useless_rows, r"\d+ of \d+ sampled rows cannot be used: \d+ empty, \d+ null"),
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
