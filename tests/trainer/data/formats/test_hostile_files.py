"""A small file that becomes large ends with its name and exit code 78, in a process with little memory."""

import json
import subprocess
import sys
import tarfile

import pytest

from tests.trainer.data.data_files import WRITERS
from tests.trainer.data.formats import hostile_files
from tpujob_contract import ExitCode
from tpujob_trainer.data import DataChangedError, DataConfig, make_manifest
from tpujob_trainer.data.formats.tfrecord import OpenedRecords
from tpujob_trainer.data.formats.unpacking import UnpackedTooLargeError
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.sources.files import list_files
from tpujob_trainer.values.errors import ConfigurationError

LIMIT_MEBIBYTES = 3584
"""Of address space, for code and the stacks of threads as well: less than each of the files becomes."""
MOST_MEBIBYTES = 1024
"""Of memory."""
TEXTS = [f"row {number} " * 30 for number in range(20)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    hostile_files.write_all(folder)
    sizes = {path.name: path.stat().st_blocks * 512 for path in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", hostile_files.__name__, str(folder), str(LIMIT_MEBIBYTES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert max(sizes.values()) < 8 << 20
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", hostile_files.HOSTILE)
def test_hostile_file_is_refused_by_name(found, name):
    code, message = found["errors"][name]
    assert name in message
    assert code == str(int(ExitCode.CONFIGURATION)), message


@pytest.mark.parametrize("name", hostile_files.LIMITS)
def test_long_row_is_refused_before_it_is_read(found, name):
    """And not since memory was over."""
    assert (
        f"'{name}': a row behind byte 0 has more than {hostile_files.LIMITS[name] // 4} bytes"
        in (found["errors"][name][1])
    )


def test_long_record_is_refused_where_a_range_begins_before_it(tmp_path):
    WRITERS["a.tfrecord-00000-of-00001"](tmp_path / "a.tfrecord", TEXTS)
    whole = (tmp_path / "a.tfrecord").stat().st_size
    hostile_files.write_long_record(tmp_path / "a.tfrecord")
    config = DataConfig(path=str(tmp_path / "a.tfrecord"), max_unpacked_bytes=1 << 30)
    root, (file,) = list_files(str(tmp_path / "a.tfrecord"))
    opened = OpenedRecords(root, file, config.column())
    with pytest.raises(ConfigurationError, match=rf"a\.tfrecord': a row behind byte {whole} has more than 268435456"):
        opened.read(0, whole - 5, 100)


def test_memory_is_bounded(found):
    assert found["peak_mebibytes"] < MOST_MEBIBYTES


def test_limit_is_stated_and_can_be_set(tmp_path):
    WRITERS["a.jsonl.gz"](tmp_path / "a.jsonl.gz", TEXTS)
    config = DataConfig(path=str(tmp_path), max_unpacked_bytes=1000)
    with pytest.raises(UnpackedTooLargeError, match=r"a\.jsonl\.gz.*more than 1000.*maxUnpackedBytes"):
        UnitReader(make_manifest(config)).read(0)
    assert len(UnitReader(make_manifest(DataConfig(path=str(tmp_path)))).read(0).column) == len(TEXTS)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.zst"])
@pytest.mark.parametrize("member", [1, 5, 39])
@pytest.mark.parametrize("beyond", [0, 1, 511, 512, 513])
def test_tar_cut_in_or_behind_a_header_is_refused(tmp_path, name, member, beyond):
    """`tarfile` takes it for a whole tar of fewer members."""
    whole = tmp_path / "whole.tar"
    WRITERS["a.tar"](whole, TEXTS)
    with tarfile.open(whole) as tar:
        offset = tar.getmembers()[member].offset
    content = whole.read_bytes()[: offset + beyond]
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / name
    if name == "a.tar":
        path.write_bytes(content)
    else:
        import pyarrow as pa

        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(content)
    with pytest.raises(DataChangedError, match=rf"{name}.*cut off"):
        UnitReader(make_manifest(DataConfig(path=str(tmp_path / "data")))).read(0)


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_that_tarfile_reads(tmp_path, kind):
    from tests.trainer.data.data_files import add_member

    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as tar:
        folder = tarfile.TarInfo("deep")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        link = tarfile.TarInfo("deep/link")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere"
        tar.addfile(link)
        for number in range(4):
            name = f"{number}.txt" if kind == tarfile.USTAR_FORMAT else f"{'long/' * 30}ü{number}.txt"
            add_member(tar, name, b"x" * (number * 500))
    with tarfile.open(tmp_path / "a.tar") as tar:
        files = [(member.name, tar.extractfile(member)) for member in tar if member.isfile()]
        expected = [(name, file.read()) for name, file in files if file is not None]
    from tpujob_trainer.data.formats.tar_members import read_members

    with (tmp_path / "a.tar").open("rb") as stream:
        assert list(read_members(stream, lambda name: True)) == expected


def test_lying_length_of_an_array_record_is_refused(tmp_path):
    from tpujob_trainer.data.formats.arrayrecord import _decompressed

    column = DataConfig(path="a").column()
    lying = b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 100
    with pytest.raises(ConfigurationError, match=r"a\.arrayrecord"):
        _decompressed(lying, ord("z"), "a.arrayrecord", column)


def test_deep_json_is_a_broken_row(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "b", "x": ' + b"[" * 500_000 + b"]" * 500_000 + b"}\n")
    manifest = make_manifest(DataConfig(path=str(tmp_path)))
    rows = UnitReader(manifest).read(0)
    assert rows.column.to_pylist()[0] in ("a", b"a")
