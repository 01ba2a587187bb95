"""A file that is replaced under its name is refused by name, and no row of the new content is given out."""

import os
import shutil

import pyarrow.parquet as pq
import pytest

from tests.trainer.data.data_files import WRITERS
from tpujob_trainer.data import DataChangedError, DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.scan import verify_unchanged
from tpujob_trainer.data.manifest.table import read_manifest, write_manifest

OLD = [f"old row {number:04d} {'of the first content ' * 20}" for number in range(300)]
NEW = [text.replace("old", "new") for text in OLD]
NAMES = [*WRITERS, "b.parquet"]


def written(name, folder, texts):
    folder.mkdir(exist_ok=True)
    if name == "b.parquet":  # without statistics, dictionaries and compression: the footers of both are the same
        import pyarrow as pa

        pq.write_table(
            pa.table({"text": texts}), folder / name, compression="none", use_dictionary=False, write_statistics=False
        )
    else:
        WRITERS[name](folder / name, texts)
    return folder / name


def in_place(path, content):
    """The same inode: an editor that writes over a file."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def by_rename(path, content):
    """Another inode: rsync, and most programs that write a file."""
    beside = path.with_name("." + path.name)
    beside.write_bytes(content)
    beside.replace(path)


def by_rename_with_its_time(path, content):
    before = path.stat()
    by_rename(path, content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_place_with_its_time(path, content):
    before = path.stat()
    in_place(path, content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


REPLACEMENTS = [in_place, by_rename, by_rename_with_its_time, in_place_with_its_time]


def reading(folder):
    manifest = make_manifest(DataConfig(path=str(folder), unit_bytes=16384))
    return manifest, UnitReader(manifest)


def texts_of(rows):
    return [row.decode() if isinstance(row, bytes) else row for row in rows.column.to_pylist()]


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("moment", ["before it is opened", "while it is open"])
def test_replaced_file_is_refused(tmp_path, name, replace, moment):
    path = written(name, tmp_path / "data", OLD)
    new = written(name, tmp_path / "new", NEW).read_bytes()
    manifest, reader = reading(tmp_path / "data")
    if moment == "while it is open":
        assert texts_of(reader.read(0))[0] == OLD[0]

    replace(path, new)

    for unit in range(manifest.num_units):
        with pytest.raises(DataChangedError, match=name):
            reader.read(unit)


@pytest.mark.parametrize("name", NAMES)
def test_longer_file_is_refused(tmp_path, name):
    path = written(name, tmp_path / "data", OLD)
    manifest, reader = reading(tmp_path / "data")
    reader.read(0)
    in_place(path, written(name, tmp_path / "new", [*OLD, *NEW]).read_bytes())
    with pytest.raises(DataChangedError, match=name):
        reader.read(manifest.num_units - 1)


def test_parquet_with_the_same_footer_is_refused_by_the_next_attempt(tmp_path):
    path = written("b.parquet", tmp_path / "data", OLD)
    new = written("b.parquet", tmp_path / "new", NEW).read_bytes()
    assert new[-200:] == path.read_bytes()[-200:]
    config = DataConfig(path=str(tmp_path / "data"))
    write_manifest(make_manifest(config), str(tmp_path / "run"))
    by_rename(path, new)
    kept = read_manifest(str(tmp_path / "run"), config)
    assert kept is not None
    with pytest.raises(DataChangedError, match=r"b\.parquet"):
        verify_unchanged(kept, config)


def test_files_with_the_same_footer_are_not_mistaken_for_each_other(tmp_path):
    for name, texts in (("1.parquet", OLD), ("2.parquet", NEW)):
        shutil.copy(written("b.parquet", tmp_path / "made", texts), tmp_path / name)
    shutil.rmtree(tmp_path / "made")
    manifest, reader = reading(tmp_path)
    rows = [text for unit in range(manifest.num_units) for text in texts_of(reader.read(unit))]
    assert rows == OLD + NEW


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["touched", "chmod", "copied back", "linked"])
def test_same_content_is_read_on(tmp_path, name, change):
    path = written(name, tmp_path / "data", OLD)
    _, reader = reading(tmp_path / "data")
    first = texts_of(reader.read(0))
    if change == "touched":
        os.utime(path)
    elif change == "chmod":
        path.chmod(0o600)
    elif change == "linked":
        (tmp_path / "link").hardlink_to(path)
    else:
        by_rename(path, path.read_bytes())
    assert texts_of(reader.read(0)) == first


def test_large_file_that_was_written_to_between_its_samples_is_refused(tmp_path):
    path = written("a.txt", tmp_path / "data", OLD * 20)
    assert path.stat().st_size > 2 << 20
    _, reader = reading(tmp_path / "data")
    reader.read(0)
    with path.open("r+b") as file:
        file.seek((64 << 10) + 1000)
        file.write(b"x")
    with pytest.raises(DataChangedError, match=r"a\.txt.*it was written to"):
        reader.read(0)


def test_file_written_to_while_it_is_read_is_refused(tmp_path):
    path = written("a.txt", tmp_path, OLD)
    manifest, reader = reading(tmp_path)
    root, file = reader._roots[0], manifest.file(0)
    opened = root.open_file(file).__enter__()
    opened.read(10)
    in_place(path, path.read_bytes().replace(b"old", b"new"))
    opened.read(10)
    with pytest.raises(DataChangedError, match="while it was read"):
        opened.__exit__(None, None, None)


def test_manifest_of_an_earlier_release_is_read(tmp_path):
    """It has no versions of files on disks: the first look counts."""
    import dataclasses

    path = written("a.txt", tmp_path, OLD)
    manifest = dataclasses.replace(make_manifest(DataConfig(path=str(tmp_path), unit_bytes=16384)), versions=("",))
    reader = UnitReader(manifest)
    assert texts_of(reader.read(0))[0] == OLD[0]
    by_rename(path, path.read_bytes().replace(b"old", b"new"))
    with pytest.raises(DataChangedError, match=r"a\.txt.*replaced"):
        reader.read(0)
