"""Files that are not what they should be end with their name, not with what a library raises."""

import gzip

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tests.trainer.data.data_files import write_arrow
from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.table import FILE_NAME, read_manifest, write_manifest
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
def test_text_in_utf16_is_refused(tmp_path, name, encoding):
    content = ('{"text": "some words"}\n' * 300).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ConfigurationError, match=rf"{name}.*looks like UTF-16"):
        UnitReader(make_manifest(DataConfig(path=str(tmp_path)))).read(0)


def test_text_with_some_zeros_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"some words\0 and a zero\n" * 3)
    assert len(UnitReader(make_manifest(DataConfig(path=str(tmp_path)))).read(0).column) == 3


def test_two_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(
        pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), tmp_path / "a.parquet"
    )
    with pytest.raises(ConfigurationError, match=r"a\.parquet' has 2 columns named 'text'"):
        make_manifest(DataConfig(path=str(tmp_path)))


def test_compressed_arrow_file_is_refused(tmp_path):
    feather.write_feather(pa.table({"text": ["a"]}), tmp_path / "a.arrow", compression="zstd")
    with pytest.raises(ConfigurationError, match=r"a\.arrow' has compressed batches"):
        make_manifest(DataConfig(path=str(tmp_path)))


def test_damaged_arrow_file_is_named_whatever_byte_is_another(tmp_path):
    write_arrow(tmp_path / "a.arrow", [f"row {number}" for number in range(20)])
    content, refused = (tmp_path / "a.arrow").read_bytes(), []
    for at in range(0, len(content), 5):
        for harmed in (content[:at] + b"\xff" + content[at + 1 :], content[:at]):
            (tmp_path / "a.arrow").write_bytes(harmed)
            try:
                UnitReader(make_manifest(DataConfig(path=str(tmp_path / "a.arrow")))).read(0)
            except (ConfigurationError, NotFoundError) as error:
                refused.append(str(error))
    assert len(refused) > len(content) / 10
    assert all("a.arrow" in message for message in refused)


@pytest.mark.parametrize("harm", [lambda data: data[:50], lambda data: b"", lambda data: data[:-8] + b"x" * 8])
def test_damaged_list_of_data_is_named(tmp_path, harm):
    (tmp_path / "a.txt").write_text("some words\n")
    config = DataConfig(path=str(tmp_path / "a.txt"))
    write_manifest(make_manifest(config), str(tmp_path))
    kept = tmp_path / FILE_NAME
    kept.write_bytes(harm(kept.read_bytes()))
    with pytest.raises(ConfigurationError, match=rf"{FILE_NAME}: the list of data is damaged"):
        read_manifest(str(tmp_path), config)


def test_changed_byte_in_the_list_of_data_is_found(tmp_path):
    (tmp_path / "a.txt").write_text("some words\n")
    config = DataConfig(path=str(tmp_path / "a.txt"))
    write_manifest(make_manifest(config), str(tmp_path))
    kept = tmp_path / FILE_NAME
    with pq.ParquetFile(kept) as file:
        count = file.metadata.row_group(0).column(file.schema_arrow.get_field_index("count"))
    content = bytearray(kept.read_bytes())
    content[count.dictionary_page_offset + count.total_compressed_size - 1] ^= 1
    kept.write_bytes(bytes(content))
    with pytest.raises(ConfigurationError, match=rf"{FILE_NAME}: the list of data is damaged \(.*CRC checksum"):
        read_manifest(str(tmp_path), config)


def test_page_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a row"] * 2000}), path)
    reader = UnitReader(make_manifest(DataConfig(path=str(tmp_path))))

    def refuse(*_, **__):
        raise OSError("Forbidden: https://storage.googleapis.com/download/storage/v1/b/corpus/o/a.parquet")

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", refuse)
    with pytest.raises(NotFoundError, match=r"no permission to read .*a\.parquet'"):
        reader.read(0)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
def test_damaged_page_of_parquet_is_named(tmp_path, compression):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"row {number}" for number in range(2000)]}), path, compression=compression)
    content = bytearray(path.read_bytes())
    content[4:64] = b"\xff" * 60
    path.write_bytes(bytes(content))
    with pytest.raises(ConfigurationError, match=r"spec\.trainer\.data\.path: 'a\.parquet': a page is damaged"):
        UnitReader(make_manifest(DataConfig(path=str(tmp_path)))).read(0)


@pytest.mark.parametrize("path", ["a[1]", "a[1]/a.txt"], ids=["folder", "file"])
def test_name_that_is_taken_as_a_pattern_is_told_how_to_be_written(path):
    fsspec.filesystem("memory").pipe_file("/b/a[1]/a.txt", b"some words\n")
    with pytest.raises(NotFoundError, match="was taken as a pattern, and matches no file") as refusal:
        make_manifest(DataConfig(path=f"memory://b/{path}"))

    advice = str(refusal.value).rpartition("write ")[2].strip("'")
    assert advice.startswith("memory:///b/a[[]1]")
    assert make_manifest(DataConfig(path=advice)).num_units == 1


@pytest.mark.parametrize("folder", ["run[1]", "run?", "run*", "[a-z]"])
@pytest.mark.parametrize("path", ["a.txt", ".", "*.txt", "{a,b}.txt", "[ab].txt", "../x/*.txt"])
@pytest.mark.parametrize("is_absolute", [False, True], ids=["relative", "absolute"])
def test_name_of_a_folder_on_a_disk_is_no_pattern(tmp_path, monkeypatch, folder, path, is_absolute):
    for name in ("x", folder, f"{folder}/other[2]"):
        (tmp_path / name).mkdir()
    for name in ("x", folder):
        (tmp_path / name / "a.txt").write_text("some words\n")
        (tmp_path / name / "b.txt").write_text("some words\n")
    monkeypatch.chdir(tmp_path / folder)
    named = str(tmp_path / folder / path) if is_absolute else path
    assert make_manifest(DataConfig(path=named)).num_units == (1 if path == "a.txt" else 2)
