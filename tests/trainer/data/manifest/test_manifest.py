import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.data.parquet_files import manifest_of, write_groups, write_numbered
from tpujob_trainer.data import (
    DataChangedError,
    DataConfig,
    Manifest,
    make_manifest,
    read_manifest,
    verify_unchanged,
    write_manifest,
)
from tpujob_trainer.data.manifest.permutation import cut_units
from tpujob_trainer.data.manifest.table import FILE_NAME, read_unit_rows
from tpujob_trainer.storage.tensorstore_bucket import TensorStoreBucket
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

GROUPS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5000)), min_size=1, max_size=20)


def cut(groups, **limits):
    rows, size = (np.array(column, dtype=np.int64) for column in zip(*groups, strict=True))
    number = np.arange(len(groups))
    return cut_units(number, number, rows, size, **limits)


def stored_manifest(directory, config) -> Manifest:
    manifest = read_manifest(directory, config)
    assert manifest is not None
    return manifest


@given(groups=GROUPS, unit_bytes=st.integers(1, 6000), minimum=st.integers(1, 400))
def test_units_are_all_rows_once(groups, unit_bytes, minimum):
    file, _, first, rows, _ = cut(groups, unit_bytes=unit_bytes, minimum=minimum)

    covered = [
        (at, row) for at, begin, count in zip(file, first, rows, strict=True) for row in range(begin, begin + count)
    ]

    assert covered == [(at, row) for at, (count, _) in enumerate(groups) for row in range(count)]
    assert (rows > 0).all()
    assert len(rows) >= min(minimum, sum(count for count, _ in groups))


@given(groups=GROUPS, unit_bytes=st.integers(1, 6000))
def test_units_keep_to_their_size(groups, unit_bytes):
    _, _, _, rows, size = cut(groups, unit_bytes=unit_bytes, minimum=1)

    # Rows are taken to be of equal size: a unit may be larger by one of its own rows.
    assert ((size <= unit_bytes + size // rows + 1) | (rows == 1)).all()


def test_row_groups_are_units_where_they_are_small(tmp_path):
    write_numbered(tmp_path, [[3, 5], [], [4]])

    manifest = manifest_of(tmp_path)

    assert manifest.unit_count.tolist() == [3, 5, 4]
    assert [manifest.paths[at] for at in manifest.unit_file] == ["part-0000.parquet"] * 2 + ["part-0002.parquet"]
    assert manifest.num_rows == 12


def test_giant_row_group_is_cut(tmp_path):
    write_groups(tmp_path / "one.parquet", [[f"{row:0100d}" for row in range(1000)]])

    manifest = manifest_of(tmp_path, unit_bytes=10_000)

    assert 10 <= manifest.num_units <= 12
    assert manifest.largest_unit_bytes <= 10_500


def test_few_rows_still_fill_all_lanes(tmp_path):
    write_groups(tmp_path / "one.parquet", [["a"] * 257])

    manifest = make_manifest(DataConfig(path=str(tmp_path)), batch_size=16)

    assert manifest.num_units >= 8 * 16
    assert manifest.unit_count.sum() == 257


def test_written_and_read_back(tmp_path):
    write_numbered(tmp_path / "data", [[3, 5], [], [4], [0]])
    config = DataConfig(path=str(tmp_path / "data"))
    manifest = make_manifest(config)

    write_manifest(manifest, str(tmp_path / "run"))
    restored = stored_manifest(str(tmp_path / "run"), config)

    assert restored.fingerprint == manifest.fingerprint
    assert restored.paths == manifest.paths
    assert restored.digests == manifest.digests
    assert restored.sources == manifest.sources
    assert [restored.unit(number) for number in range(3)] == [manifest.unit(number) for number in range(3)]
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["_data.parquet"]
    verify_unchanged(restored, config)


def test_written_to_object_storage(tmp_path):
    write_numbered(tmp_path, [[3, 5]])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config)

    write_manifest(manifest, "memory://bucket/run")

    assert stored_manifest("memory://bucket/run", config).fingerprint == manifest.fingerprint


def test_nothing_written_yet(tmp_path):
    assert read_manifest(str(tmp_path), DataConfig(path=str(tmp_path))) is None


def test_directory_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "gs://b/run/_data.parquet")

    monkeypatch.setattr(TensorStoreBucket, "look", refuse)
    with pytest.raises(NotFoundError, match=rf"spec\.checkpointDir: {tmp_path} cannot be read and written"):
        read_manifest(str(tmp_path), DataConfig(path=str(tmp_path)))


def test_manifest_of_another_version_is_refused_with_what_to_do(tmp_path):
    pq.write_table(pa.table({"unit": [1]}).replace_schema_metadata({"tpujob.version": "0"}), tmp_path / FILE_NAME)

    with pytest.raises(ConfigurationError, match=r"_data\.parquet: format 0 .* another spec\.checkpointDir"):
        read_manifest(str(tmp_path), DataConfig(path=str(tmp_path)))


def test_manifest_below_the_data_is_not_data(tmp_path):
    write_numbered(tmp_path, [[3, 5]])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config)

    write_manifest(manifest, str(tmp_path / "run"))

    verify_unchanged(manifest, config)


def test_moved_data_is_the_same_data(tmp_path):
    write_numbered(tmp_path / "here", [[3, 5], [2]])
    manifest = manifest_of(tmp_path / "here")
    write_manifest(manifest, str(tmp_path / "run"))
    shutil.move(tmp_path / "here", tmp_path / "there")
    config = DataConfig(path=str(tmp_path / "there"))

    restored = stored_manifest(str(tmp_path / "run"), config)

    verify_unchanged(restored, config)
    assert restored.fingerprint == manifest.fingerprint == manifest_of(tmp_path / "there").fingerprint
    assert restored.sources[0].root.endswith("/there")


def edit(folder):
    write_groups(folder / "part-0001.parquet", [["other", "text"]])


def edit_keeping_the_size(folder):
    before = (folder / "part-0001.parquet").stat().st_size
    write_groups(folder / "part-0001.parquet", [["row-3;yyy", "row-4;y"]])
    assert (folder / "part-0001.parquet").stat().st_size == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit, "'part-0001.parquet' has changed since this run began: its size was"),
        (edit_keeping_the_size, "'part-0001.parquet' has changed since this run began: its content is another one"),
        (lambda folder: (folder / "part-0001.parquet").unlink(), "'part-0001.parquet' has changed .* it is gone"),
        (lambda folder: write_groups(folder / "x.parquet", [["new"]]), "'x.parquet' has changed .* it is new"),
    ],
    ids=["edited", "same size", "deleted", "added"],
)
def test_changed_data_is_refused_by_name(tmp_path, change, message):
    write_numbered(tmp_path, [[3], [2], [4]])
    manifest = manifest_of(tmp_path)

    change(tmp_path)

    with pytest.raises(DataChangedError, match=rf"^spec\.trainer\.data\.path: {message}"):
        verify_unchanged(manifest, DataConfig(path=str(tmp_path)))


def test_missing_column_is_told_with_those_there(tmp_path):
    write_groups(tmp_path / "one.parquet", [["a"]], column="content")

    with pytest.raises(ConfigurationError, match=r"textColumn: 'text' is not a column of .*; there are id, content$"):
        manifest_of(tmp_path)


def test_column_of_numbers_is_refused(tmp_path):
    write_groups(tmp_path / "one.parquet", [["a"]], column="content")

    with pytest.raises(ConfigurationError, match=r"'id' of .* holds int64, not text; columns with text: content"):
        make_manifest(DataConfig(path=str(tmp_path), text_column="id"))


def test_data_without_rows_is_refused(tmp_path):
    write_numbered(tmp_path, [[], [0]])

    with pytest.raises(ConfigurationError, match="2 parquet files and no row in any of them"):
        manifest_of(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a parquet file"), (b"hello, this is text", "not a parquet file"), (b"cut", "cut off")],
    ids=["empty", "text", "truncated"],
)
def test_broken_file_is_named(tmp_path, content, message):
    if content == b"cut":
        content = b"PAR1" + (10**6).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "bad.parquet").write_bytes(content)

    with pytest.raises(ConfigurationError, match=f"bad.parquet' is {message}"):
        manifest_of(tmp_path)


def test_another_column_than_the_run_began_with_is_refused(tmp_path):
    write_numbered(tmp_path / "data", [[3]])
    write_manifest(manifest_of(tmp_path / "data"), str(tmp_path / "run"))

    with pytest.raises(ConfigurationError, match=r"textColumn: 'body', but this run began with 'text'"):
        read_manifest(str(tmp_path / "run"), DataConfig(path=str(tmp_path / "data"), text_column="body"))


def test_large_footer_is_read_whole(tmp_path):
    names = [f"{'column' * 20}{number}" for number in range(1000)]
    pq.write_table(pa.table({**{name: ["x"] for name in names}, "text": ["hello"]}), tmp_path / "wide.parquet")

    assert manifest_of(tmp_path).num_rows == 1


def test_many_units_take_seconds(tmp_path):
    """200 000 units in 20 files; measured 0.7 s of a processor, the limit is for a slow one."""
    schema = pa.schema([("text", pa.string())])
    one = tmp_path / "part-00.parquet"
    with pq.ParquetWriter(one, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        batch = pa.record_batch({"text": pa.array(["a"], pa.string())}, schema=schema)
        for _ in range(10_000):
            writer.write_batch(batch, row_group_size=1)

    for number in range(1, 20):
        shutil.copy(one, tmp_path / f"part-{number:02d}.parquet")

    began = time.process_time()
    manifest = manifest_of(tmp_path)
    write_manifest(manifest, str(tmp_path / "run"))
    restored = stored_manifest(str(tmp_path / "run"), DataConfig(path=str(tmp_path)))
    seconds = time.process_time() - began

    assert restored.num_units == 200_000
    assert restored.fingerprint == manifest.fingerprint
    assert seconds < 20


def test_rows_of_units_are_known_where_files_count_them(tmp_path):
    write_numbered(tmp_path / "parquet", [[3, 5], [2]])
    manifest = manifest_of(tmp_path / "parquet")
    write_manifest(manifest, str(tmp_path / "counted"))
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text('{"text": "x"}\n')
    write_manifest(manifest_of(tmp_path / "lines"), str(tmp_path / "uncounted"))

    counted = read_unit_rows(str(tmp_path / "counted"))
    assert counted is not None
    assert counted.tolist() == manifest.unit_count.tolist()
    assert read_unit_rows(str(tmp_path / "uncounted")) is None
    assert read_unit_rows(str(tmp_path / "nothing")) is None
