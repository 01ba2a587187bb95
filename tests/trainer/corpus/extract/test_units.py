import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tpujob_trainer.corpus.extract.units import UNCOUNTED, cut, first_samples, rows_per_unit, rows_problem
from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.values.errors import ConfigurationError

FIELD = "spec.trainer.extract"


@pytest.fixture
def manifest(tmp_path):
    for name, rows in (("a", 25), ("b", 10)):
        pq.write_table(pa.table({"text": ["text"] * rows}), tmp_path / f"{name}.parquet", row_group_size=20)
    return make_manifest(DataConfig(path=f"{tmp_path}/*.parquet"))


@pytest.mark.parametrize(
    ("rows_per_unit", "rows", "counts"),
    [
        pytest.param(8, None, [8, 8, 4, 5, 8, 2], id="by rows, not over row groups"),
        pytest.param(100, None, [20, 5, 10], id="as row groups are"),
        pytest.param(8, 22, [8, 8, 4, 2], id="the first rows"),
        pytest.param(8, 20, [8, 8, 4], id="the first rows, a whole row group"),
        pytest.param(8, 1, [1], id="one row"),
        pytest.param(8, 1000, [8, 8, 4, 5, 8, 2], id="more rows than there are"),
    ],
)
def test_units_by_rows(manifest, rows_per_unit, rows, counts):
    found = cut(manifest, rows_per_unit, rows, field=FIELD)
    assert found.unit_count.tolist() == counts
    assert first_samples(found).tolist() == np.cumsum([0, *counts[:-1]]).tolist()


def test_uncounted_rows_cannot_be_limited(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    manifest = make_manifest(DataConfig(path=f"{tmp_path}/*.jsonl"))
    with pytest.raises(ConfigurationError, match=r"extract\.rows: 5, but the rows of jsonl files are not counted"):
        cut(manifest, 8, 5, field=FIELD)
    assert cut(manifest, 8, None, field=FIELD) is manifest


def test_bytes_of_a_unit_are_its_share(manifest):
    whole = manifest.unit_bytes[manifest.unit_count == 20].item()
    found = cut(manifest, 8, 20, field=FIELD)
    assert found.unit_bytes.tolist() == [int(whole * (rows / 20)) for rows in (8, 8, 4)]
    assert found.unit_first.tolist() == [0, 8, 16]


def test_samples_of_uncounted_units_have_room(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "a"}\n')
    manifest = make_manifest(DataConfig(path=f"{tmp_path}/*.jsonl"))
    assert first_samples(manifest).tolist() == [0, UNCOUNTED, 2 * UNCOUNTED]


@pytest.mark.parametrize(
    ("asked", "made", "corpus", "problem"),
    [
        pytest.param(40, 40, 100, None, id="the same"),
        pytest.param(None, 100, 100, None, id="all"),
        pytest.param(200, 100, 100, None, id="more than there are, and all"),
        pytest.param(80, 40, 100, "80 in this job, 40 in the files that are there; put 40 back, or write", id="more"),
        pytest.param(20, 40, 100, "20 in this job, 40 in the files that are there; put 40 back, or write", id="fewer"),
        pytest.param(None, 40, 100, "all 100 in this job, 40 in the files that are there; put 40 back", id="then all"),
        pytest.param(20, 100, 100, "20 in this job, 100 in the files that are there; leave it out", id="all before"),
    ],
)
def test_other_rows_than_the_units_have_are_refused(asked, made, corpus, problem):
    found = rows_problem(asked, made=made, corpus=corpus, field=FIELD)
    assert (found or "").startswith("" if problem is None else f"{FIELD}.rows: {problem}")
    assert (found is None) == (problem is None)


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        pytest.param({"row_bytes": 1 << 20, "total_rows": None}, 512, id="fills one file"),
        pytest.param({"row_bytes": 1 << 20, "total_rows": 10**9}, 512, id="a large corpus"),
        pytest.param({"row_bytes": 14_680_064, "total_rows": 100_000}, 32, id="36 rows fill a file: whole batches"),
        pytest.param({"row_bytes": 28_672, "total_rows": 100_000}, 192, id="enough units for 32 workers"),
        pytest.param({"row_bytes": 1 << 30, "total_rows": 100}, 16, id="a batch at least"),
        pytest.param({"row_bytes": 1 << 26, "total_rows": 10**9, "filled": 1 / 8}, 128, id="short rows fill a batch"),
        pytest.param({"row_bytes": 1 << 26, "total_rows": 10**4, "filled": 1 / 8}, 16, id="enough units of short rows"),
        pytest.param({"row_bytes": 0, "total_rows": None}, 512 << 20, id="nothing of a row"),
    ],
)
def test_rows_of_a_unit(arguments, rows):
    assert rows_per_unit(shard_bytes=512 << 20, batch=16, workers=32, **arguments) == rows
