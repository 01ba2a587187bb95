"""Files are read back by other libraries than wrote them, where there are any."""

import dataclasses

import datasets
import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tpujob_trainer.corpus.extract.shards import UnitTable, write_shards

LENGTHS = np.array([3, 1, 4], dtype=np.int64)
VALUES = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)


def make_table(dtype="float16", *, per_token=True, **more):
    values = VALUES if per_token else VALUES[:3]
    columns = {"layer_0_residual": values.astype(dtype)}
    if dtype == "int8":
        columns["layer_0_residual_scale"] = np.arange(len(values), dtype=np.float32)
    return UnitTable(
        unit=7,
        samples=np.array([70, 71, 73]),
        rows=np.array([0, 1, 3], dtype=np.int32),
        tokens=np.arange(8, dtype=np.int32),
        lengths=LENGTHS,
        columns={**columns, **more},
        per_token=frozenset(["layer_0_residual", *more] if per_token else ()),
    )


def _write(table, folder, **arguments):
    return write_shards(
        table,
        folder,
        "x",
        **{"file_format": "parquet", "compression": "zstd", "shard_bytes": 1 << 20, **arguments},
    )


@pytest.mark.parametrize("per_token", [True, False], ids=["all tokens", "one vector a row"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_datasets_opens_parquet(tmp_path, dtype, per_token):
    table = make_table(dtype, per_token=per_token)
    (file,) = _write(table, tmp_path)
    found = datasets.load_dataset("parquet", data_files=str(file.path), split="train", cache_dir=str(tmp_path))
    found = found.with_format("numpy")
    assert found["sample"][:].tolist() == [70, 71, 73]
    values = table.columns["layer_0_residual"]
    expected = np.split(values, [3, 4]) if per_token else list(values)
    for row, wanted in zip(found["layer_0_residual"], expected, strict=True):
        np.testing.assert_array_equal(np.asarray(row), wanted)


@pytest.mark.parametrize("per_token", [True, False], ids=["all tokens", "one vector a row"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_safetensors_opens_its_files(tmp_path, dtype, per_token):
    table = make_table(dtype, per_token=per_token)
    files = _write(table, tmp_path, file_format="safetensors", shard_bytes=1)
    assert [file.rows for file in files] == [1, 1, 1]
    found = [load_file(file.path) for file in files]
    for name, wanted in {
        "sample": table.samples,
        "row": table.rows,
        "length": table.lengths,
        "tokens": table.tokens,
        **table.columns,
    }.items():
        joined = np.concatenate([tensors[name] for tensors in found])
        assert joined.dtype == wanted.dtype
        np.testing.assert_array_equal(joined, wanted)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_arrow_file_is_memory_mapped(tmp_path, compression):
    (file,) = _write(make_table(), tmp_path, file_format="arrow", compression=compression)
    before = pa.total_allocated_bytes()
    with pa.memory_map(str(file.path)) as source:
        found = pa.ipc.open_file(source).read_all()
        if compression == "none":
            assert pa.total_allocated_bytes() == before, "the values were copied into memory"
        flat = found["layer_0_residual"].chunk(0).values.values.to_numpy()
        np.testing.assert_array_equal(flat.reshape(8, 6), VALUES.astype(np.float16))


def test_bfloat16_is_its_bits(tmp_path):
    (file,) = _write(make_table(ml_dtypes.bfloat16), tmp_path)
    found = pq.read_table(file.path)
    assert found.schema.field("layer_0_residual").metadata == {b"dtype": b"bfloat16"}
    bits = found["layer_0_residual"].combine_chunks().values.values.to_numpy()
    np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16).reshape(8, 6), VALUES.astype(ml_dtypes.bfloat16))


def test_files_are_of_a_set_size(tmp_path):
    files = _write(make_table("float32"), tmp_path, shard_bytes=120)
    assert [file.rows for file in files] == [2, 1]
    tokens = [row for file in files for row in pq.read_table(file.path)["tokens"].to_pylist()]
    assert tokens == [[0, 1, 2], [3], [4, 5, 6, 7]]


def test_unit_without_rows_has_no_file(tmp_path):
    nothing = np.empty(0, dtype=np.int64)
    table = UnitTable(
        7, nothing, nothing.astype(np.int32), nothing.astype(np.int32), nothing, {}, per_token=frozenset()
    )
    assert _write(table, tmp_path) == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tokens": np.arange(1, 9, dtype=np.int32)}, id="token"),
        pytest.param({"samples": np.array([70, 71, 72])}, id="sample"),
        pytest.param({"columns": {"layer_0_residual": -VALUES.astype(np.float16)}}, id="value"),
        pytest.param({"columns": {"layer_1_residual": VALUES.astype(np.float16)}}, id="name"),
    ],
)
def test_checksum_sees_each_change(changes):
    assert dataclasses.replace(make_table(), **changes).checksum() != make_table().checksum()
