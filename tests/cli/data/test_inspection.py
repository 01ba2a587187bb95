from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from typer.testing import CliRunner

from tests.operator.manifests import manifest
from tpujob.job.template import source_of
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
        *((f"shards/a{ending}", {"path": f"shards/a{ending}"}) for ending in (".tgz", ".ndjson", ".pq", ".tar.zst")),
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
    assert lines[0].endswith("1 file (parquet), 200 rows")
    assert any("tokens (every row was counted); an epoch is" in line for line in lines)
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


def job_file(folder, **trainer):
    block = {"steps": 1, "batchSize": 4, "sequenceLength": 32, "model": {"preset": "tiny"}, **trainer}
    file = folder / "job.yaml"
    file.write_text(json.dumps(manifest("job", accelerator="cpu:2x1", trainer=block)))
    return file


def test_rows_of_a_job_are_shown_as_its_template_writes_them(texts):
    result = inspect(job_file(texts, data={"path": str(texts / "*.parquet"), "template": "<q>{{ text }}</q>"}))

    assert result.exit_code == 0, result.output
    assert any(line.startswith("example: ") and '"<bos><q>row ' in line for line in result.output.splitlines())


def test_each_process_is_shown_with_the_rows_that_begin_its_batch(texts):
    found = json.loads(inspect(job_file(texts, data={"path": str(texts / "*.parquet")}), "--json").stdout)

    first, second = found["processes"]
    assert (first["rows"], second["rows"]) == ([0, 1], [2, 3])
    for process in (first, second):
        places = [lane.split(" rows ")[1].split(", ")[0] for lane in process["first_rows"].split("; ")]
        # The text of a row says where it stands in the file; a row group has five.
        for at, place in zip(range(process["rows"][0], process["rows"][1] + 1), places, strict=True):
            number = int(found["first_batch"]["rows"][at]["text"].split()[1])
            assert number % 5 == int(place), (at, process)


def test_rows_that_do_not_divide_over_processes_are_refused(texts):
    result = inspect(texts, "--batch-size", 4, "--processes", 3)
    assert result.exit_code == 78
    assert "--processes: 3 do not divide the 4 rows of a batch" in result.stderr


def test_share_of_lost_rows_is_shown_by_cause_with_its_remedy(tmp_path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<end>": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<end>"])
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    pq.write_table(pa.table({"text": ["a a", "a <end>", "a a a", "a"] * 25}), tmp_path / "a.parquet")

    result = inspect(tmp_path / "a.parquet", "--tokenizer", tmp_path, "--sequence-length", 8)

    assert result.exit_code == 0, result.output
    assert "25 (25.0%) special token in the text (specialTokens: text takes it for characters" in result.output
