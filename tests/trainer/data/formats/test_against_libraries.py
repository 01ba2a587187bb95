"""Why the libraries' own readers are not used, by what they do with these files."""

from pathlib import Path

import fsspec
import grain
import pytest
from array_record.python import array_record_module

from tests.trainer.data.data_files import example, write_array_record, write_tfrecords
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest.scan import make_manifest
from tpujob_trainer.values.errors import NotFoundError


def test_array_record_library_reads_a_missing_file_as_empty(tmp_path: Path) -> None:
    missing = tmp_path / "a.array_record"
    assert array_record_module.ArrayRecordReader(str(missing)).num_records() == 0
    with pytest.raises(NotFoundError):
        make_manifest(DataConfig(path=str(missing)))


def test_array_record_library_knows_no_file_system_of_fsspec(tmp_path: Path) -> None:
    write_array_record(tmp_path / "a.array_record", ["one", "two"])
    files = fsspec.filesystem("memory")
    files.pipe_file("/records/a.array_record", (tmp_path / "a.array_record").read_bytes())
    try:
        assert array_record_module.ArrayRecordReader("memory://records/a.array_record").num_records() == 0
        assert make_manifest(DataConfig(path="memory://records/a.array_record")).num_rows == 2
    finally:
        files.rm("/records", recursive=True)


def test_grain_reads_damaged_records(tmp_path: Path) -> None:
    """It compares no checksum, opens local paths alone, and reads a file from its beginning."""
    path = tmp_path / "a.tfrecord"
    write_tfrecords(path, [example(text="one"), example(text="two")])
    content = bytearray(path.read_bytes())
    content[content.index(b"two")] ^= 1
    path.write_bytes(content)
    assert len(list(grain.experimental.TFRecordIterDataset(str(path)))) == 2
