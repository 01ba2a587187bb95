import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.extract.units import cut, first_samples


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
    found = cut(manifest, rows_per_unit, rows)
    assert found.unit_count.tolist() == counts
    assert first_samples(found).tolist() == np.cumsum([0, *counts[:-1]]).tolist()


def test_uncounted_rows_cannot_be_limited(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    manifest = make_manifest(DataConfig(path=f"{tmp_path}/*.jsonl"))
    with pytest.raises(ConfigurationError, match=r"extract\.rows: 5, but the rows of jsonl files are not counted"):
        cut(manifest, 8, 5)
    assert cut(manifest, 8, None) is manifest
