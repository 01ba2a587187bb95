"""az:// against Azurite: data is read, and outputs of workers are written, as on any other storage."""

import fsspec
import pytest

from tests.trainer.data.data_files import WRITERS
from tests.trainer.storage.azurite import azurite, connection_string
from tpujob_trainer.data import DataChangedError
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.scan import make_manifest
from tpujob_trainer.data.sources.files import list_files
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.directory import Directory
from tpujob_trainer.values.errors import NotFoundError

TEXTS = [f"row {number} of the data " * 20 for number in range(60)]


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


@pytest.fixture
def container(port, monkeypatch, request):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(port))
    fsspec.get_filesystem_class("az").clear_instance_cache()
    filesystem = fsspec.filesystem("az")
    name = "c" + str(abs(hash(request.node.name)))
    filesystem.mkdir(name)
    yield f"az://{name}"
    fsspec.get_filesystem_class("az").clear_instance_cache()


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.txt", "a.tfrecord-00000-of-00001", "a.tar"])
def test_data_is_read_from_a_container(container, tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    fsspec.filesystem("az").put_file(str(tmp_path / name), f"{container}/data/{name}")

    manifest = make_manifest(DataConfig(path=f"{container}/data/*", unit_bytes=4096))
    reader = UnitReader(manifest)
    rows = [row for unit in range(manifest.num_units) for row in reader.read(unit).column.to_pylist()]

    assert [row.decode() if isinstance(row, bytes) else row for row in rows] == TEXTS
    assert manifest.versions[0], "the entity tag is kept: it tells a replaced file"


def test_small_objects_are_written_read_listed_and_removed(container):
    bucket = open_bucket(f"{container}/out")
    bucket.write("a/one.json", "1")
    assert bucket.create("a/two.json", "2") is not None
    assert bucket.create("a/two.json", "other") is None
    assert bucket.read("a/two.json") == b"2"
    assert bucket.look("a/three.json") is None
    assert bucket.names("a/") == ["a/one.json", "a/two.json"]
    bucket.delete("a/one.json")
    assert bucket.names() == ["a/two.json"]


def test_files_of_workers_are_listed_with_their_times(container):
    directory = Directory(f"{container}/out")
    directory.write("files/a", b"abc")
    (file,) = directory.files("files")
    assert (file.name, file.bytes) == ("files/a", 3)
    assert file.time > 0


def test_missing_file_and_container_are_named(container):
    for path in (f"{container}/nothing/*.txt", "az://no-such-container/a.txt"):
        with pytest.raises(NotFoundError, match=path.replace("*", r"\*")):
            list_files(path)


def test_wrong_key_is_no_permission(container, port, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(port, key="d3Jvbmc="))
    fsspec.get_filesystem_class("az").clear_instance_cache()
    with pytest.raises(NotFoundError, match="no permission to read"):
        list_files(f"{container}/a.txt")


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.txt", "a.tar"])
def test_replaced_blob_is_refused(container, tmp_path, name):
    filesystem = fsspec.filesystem("az")
    WRITERS[name](tmp_path / name, TEXTS)
    filesystem.put_file(str(tmp_path / name), f"{container}/data/{name}")
    manifest = make_manifest(DataConfig(path=f"{container}/data/*", unit_bytes=4096))
    reader = UnitReader(manifest)
    reader.read(0)

    WRITERS[name](tmp_path / name, [text.replace("row", "new") for text in TEXTS])
    filesystem.put_file(str(tmp_path / name), f"{container}/data/{name}", overwrite=True)

    with pytest.raises(DataChangedError, match=name):
        UnitReader(manifest).read(0)
    with pytest.raises(DataChangedError, match=name):
        reader.read(manifest.num_units - 1 if name != "a.parquet" else len(TEXTS) // 7)
