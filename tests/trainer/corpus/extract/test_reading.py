"""What the files of an extraction hold comes back by sample and column, of every format and type of value."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

from tests.trainer.corpus.extract.test_shards import LENGTHS, VALUES, make_table
from tpujob_contract import ExitCode
from tpujob_trainer.corpus.extract.reading import read_activations
from tpujob_trainer.corpus.extract.shards import write_shards
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult, name_of
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

COLUMN = "layer_0_residual"


@pytest.fixture
def extraction(tmp_path):
    """A function that writes one of two units each time it is called; the directory."""
    (tmp_path / "done").mkdir()
    (tmp_path / "out").mkdir()

    def write(unit, table, *, positions="all", **formats):
        described = {"units": 2, "spec.trainer.extract.positions": positions}
        (tmp_path / "extract.json").write_text(json.dumps(described))
        given = {"file_format": "parquet", "compression": "zstd", "shard_bytes": 100, **formats}
        packed = write_shards(table, tmp_path / "out", f"u{unit}", **given)
        files = tuple(
            OutputFile(name=f"out/{each.path.name}", rows=each.rows, bytes=each.path.stat().st_size, crc32c="")
            for each in packed
        )
        result = UnitResult(
            unit=unit, rows=len(table.samples), skipped={}, tokens=len(table.tokens), files=files, checksum="",
            statistics={}, worker="w", token="t", seconds=1.0,
        )  # fmt: skip
        (tmp_path / name_of(unit)).write_bytes(result.to_json())
        return str(tmp_path)

    return write


@pytest.mark.parametrize("positions", ["all", "last"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "safetensors"])
def test_values_come_back_by_sample(extraction, file_format, dtype, positions):
    table = make_table(dtype, per_token=positions == "all")
    extraction(1, dataclasses.replace(table, samples=table.samples + 100), positions=positions, file_format=file_format)
    directory = extraction(0, table, positions=positions, file_format=file_format)
    found = list(read_activations(directory))
    assert [each.sample for each in found] == [70, 71, 73, 170, 171, 173]
    values = VALUES if positions == "all" else VALUES[:3]
    if dtype == "int8":
        expected = values.astype(np.int8) * np.arange(len(values), dtype=np.float32)[:, None]
    else:
        expected = values.astype(dtype)
    ends = np.cumsum(LENGTHS).tolist()
    for row, each in enumerate(found[:3]):
        tokens = slice(ends[row] - int(LENGTHS[row]), ends[row])
        np.testing.assert_array_equal(each.tokens, table.tokens[tokens])
        assert list(each.values) == [COLUMN]
        assert each.values[COLUMN].dtype == (
            np.float32 if dtype == "int8" else np.dtype(getattr(ml_dtypes, dtype, dtype))
        )
        np.testing.assert_array_equal(each.values[COLUMN], expected[tokens if positions == "all" else row])


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "safetensors"])
def test_columns_are_chosen_and_an_unknown_one_is_named(extraction, file_format):
    table = make_table("int8", per_token=True, layer_1_residual=VALUES)
    extraction(0, table, file_format=file_format)
    directory = extraction(1, table, file_format=file_format)
    (first, *_) = read_activations(directory, ["layer_1_residual"])
    assert list(first.values) == ["layer_1_residual"]
    with pytest.raises(
        ConfigurationError, match=r"columns: 'layer_7' is not in .*, which has layer_0_residual, layer_1"
    ):
        next(read_activations(directory, ["layer_7"]))


def test_processes_divide_the_files(extraction):
    table = make_table("float32")
    extraction(0, table)
    directory = extraction(1, dataclasses.replace(table, samples=table.samples + 100))
    parts = [[each.sample for each in read_activations(directory, part=(index, 2))] for index in range(2)]
    assert sorted(parts[0] + parts[1]) == [70, 71, 73, 170, 171, 173]
    assert all(parts)
    with pytest.raises(ConfigurationError, match=r"part: \(2, 2\)"):
        read_activations(directory, part=(2, 2))


def test_unfinished_extraction_is_read_only_when_asked(extraction, tmp_path):
    directory = extraction(0, make_table("float32"))
    with pytest.raises(ConfigurationError, match=r"1 of 2 units are done; wait, or pass partial=True"):
        read_activations(directory)
    assert [each.sample for each in read_activations(directory, partial=True)] == [70, 71, 73]
    with pytest.raises(NotFoundError, match="no extraction has begun there") as refused:
        read_activations(str(tmp_path / "nothing"))
    assert refused.value.exit_code == ExitCode.NOT_FOUND
