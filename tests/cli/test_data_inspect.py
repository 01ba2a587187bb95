from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tpujob.data_inspect import source_of
from tpujob.main import app


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("HuggingFaceFW/fineweb-edu", {"dataset": "HuggingFaceFW/fineweb-edu"}),
        ("gs://bucket/texts", {"path": "gs://bucket/texts"}),
        ("texts/*.parquet", {"path": "texts/*.parquet"}),
        ("/data/texts/a.parquet", {"path": "/data/texts/a.parquet"}),
        ("a.parquet", {"path": "a.parquet"}),
        ("absent/part.parquet", {"path": "absent/part.parquet"}),
    ],
)
def test_name_is_a_path_or_a_data_set(name, source):
    assert source_of(name) == source


def test_folder_that_looks_like_a_name_is_a_folder(tmp_path, monkeypatch):
    (tmp_path / "my" / "texts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert source_of("my/texts") == {"path": "my/texts"}
    assert source_of("my/txets") == {"path": "my/txets"}, "a mistyped path, beside the right one"


@pytest.fixture
def texts(tmp_path):
    rows = [f"row {number} of the texts" for number in range(200)]
    pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet", row_group_size=5)
    return tmp_path


def inspect(*arguments):
    return CliRunner().invoke(app, ["data", "inspect", *map(str, arguments)])


def test_data_set_is_told_in_words(texts):
    result = inspect(texts, "--batch-size", 4, "--sequence-length", 32)

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].endswith("1 files (parquet), 200 rows")
    assert any(line.startswith("  about 4,") and "epoch" in line for line in lines)
    assert any(line.startswith("example: a.parquet") and "of the texts" in line for line in lines)
    assert any(line.startswith("first global batch: 4 rows, digest ") for line in lines)
    assert sum(line.startswith("  row ") for line in lines) == 4


def test_json_has_all_tokens(texts):
    result = inspect(texts, "--batch-size", 2, "--sequence-length", 32, "--json")

    found = json.loads(result.stdout)
    assert [len(row["tokens"]) for row in found["first_batch"]["rows"]] == [32, 32]


def test_missing_data_ends_with_the_trainers_line(tmp_path):
    result = inspect(tmp_path / "nowhere.parquet")

    assert result.exit_code == 77
    assert "spec.trainer.data.path" in result.stderr
    assert "nowhere.parquet" in result.stderr
