"""The same claims for every kind of storage that runs here; a real bucket's in scenes/multiprocess/test_bucket.py."""

import itertools
import threading

import fsspec
import pytest

from tpujob_trainer.storage import Bucket, is_local, open_bucket
from tpujob_trainer.storage.whole import ShortAnswerError, retried_if_short
from tpujob_trainer.values.errors import ConfigurationError

number = itertools.count()


@pytest.fixture(params=["directory", "fsspec"])
def url(request, tmp_path):
    if request.param == "directory":
        yield str(tmp_path / "deep" / "new")
    else:
        yield (found := f"memory://bucket-{next(number)}")
        memory = fsspec.filesystem("memory")
        if memory.exists(found):
            memory.rm(found, recursive=True)


@pytest.fixture
def bucket(url):
    return open_bucket(url)


def version_of(bucket: Bucket, name: str) -> bytes:
    found = bucket.look(name)
    assert found is not None
    return found.version


def test_what_was_written_is_read(bucket):
    bucket.write("a/b.json", "text")
    bucket.write("a/b.json", b"\x00bytes")
    assert bucket.read("a/b.json") == b"\x00bytes"


FILES = {
    "owner.json": b'{"owner": "default/a"}\n',
    "lease.json": b'{"run": "0.0-x", "holder": "one"}',
    "steps/3/fingerprints/metadata": b'{"algorithm": "tpujob/1"}',
    "_data.parquet": b"PAR1 columns and their index PAR1",
    "metrics.csv": b"step,loss\n1,2.5\n",
    "rows.jsonl": b'{"a": 12}\n{"a": 3}\n',
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("times", [1, 3, 99])
def test_half_an_answer_is_read_again_and_never_taken_for_the_file(name, times, monkeypatch):
    monkeypatch.setattr("tpujob_trainer.storage.whole.PAUSES_SECONDS", (0, 0, 0))
    bucket = open_bucket(f"memory://half-{next(number)}")
    bucket.write(name, FILES[name])
    filesystem, left = fsspec.filesystem("memory"), itertools.count(times, -1)
    read = filesystem.cat_file
    monkeypatch.setattr(
        filesystem, "cat_file", lambda path: read(path)[: len(FILES[name]) // 2] if next(left) > 0 else read(path)
    )
    if times < 99:
        found = bucket.look(name)
        assert found is not None
        assert found.data == FILES[name]
        return
    with pytest.raises(ShortAnswerError, match=f"answers with {len(FILES[name]) // 2} of its {len(FILES[name])} bytes"):
        bucket.look(name)


@pytest.mark.parametrize(
    ("times", "is_damaged", "raised"),
    [(1, False, None), (99, False, ShortAnswerError), (0, True, ValueError)],
    ids=["once", "always", "the object itself"],
)
def test_library_that_gets_half_an_answer_does_not_find_damage(times, is_damaged, raised, monkeypatch):
    """An array is in no format that shows whether it is whole: a library says that it is damaged."""
    monkeypatch.setattr("tpujob_trainer.storage.whole.PAUSES_SECONDS", (0, 0, 0))
    url, array = f"memory://arrays-{next(number)}", bytes(range(256)) * 64
    bucket = open_bucket(url)
    bucket.write("steps/3/state/d/7f", array[:99] if is_damaged else array)
    filesystem, left = fsspec.filesystem("memory"), itertools.count(times, -1)
    read = filesystem.cat_file

    def cut(path, start=None, end=None):
        found = read(path, start, end)
        return found[: len(found) // 2] if next(left) > 0 else found

    monkeypatch.setattr(filesystem, "cat_file", cut)

    def restore():
        if (found := bucket.read("steps/3/state/d/7f")) != array:
            raise ValueError("DATA_LOSS: of another size")
        return found

    if raised is None:
        assert retried_if_short(url, restore) == array
    else:
        with pytest.raises(raised):
            retried_if_short(url, restore)


def test_file_that_is_stored_damaged_is_returned_as_it_is(bucket):
    bucket.write("owner.json", b'{"own')
    assert bucket.read("owner.json") == b'{"own'


def test_missing_object_is_not_found(bucket):
    assert bucket.look("a") is None
    with pytest.raises(FileNotFoundError):
        bucket.read("a")


def test_object_is_created_once(bucket):
    version = bucket.create("a", "first")
    assert version == version_of(bucket, "a")
    assert bucket.create("a", "second") is None
    assert bucket.read("a") == b"first"


def test_same_data_counts_as_created(bucket):
    """Its author asks again when the answer was lost."""
    bucket.create("a", "first")
    assert bucket.create("a", "first") == version_of(bucket, "a")


def test_names_are_listed_by_prefix(bucket):
    for name in ("b/2", "a", "b/10", "bc", "b/c/d"):
        bucket.write(name, name)
    assert bucket.names() == ["a", "b/10", "b/2", "b/c/d", "bc"]
    assert bucket.names("b/") == ["b/10", "b/2", "b/c/d"]
    assert bucket.names("nothing") == []


def test_deleted_object_is_gone(bucket):
    bucket.write("a", "text")
    bucket.delete("a")
    bucket.delete("a")
    assert bucket.look("a") is None
    assert bucket.names() == []


def test_another_version_is_another_object(bucket):
    bucket.write("a", "1")
    first = version_of(bucket, "a")
    bucket.write("a", "2")
    assert version_of(bucket, "a") != first


def test_object_is_replaced_only_if_unchanged(tmp_path):
    bucket = open_bucket(tmp_path)
    bucket.write("a", "1")
    version = version_of(bucket, "a")
    newer = bucket.replace("a", "2", version=version)
    assert newer == version_of(bucket, "a")
    assert bucket.replace("a", "3", version=version) is None
    assert bucket.read("a") == b"2"


def test_removed_object_is_not_replaced(tmp_path):
    bucket = open_bucket(tmp_path)
    bucket.write("a", "1")
    version = version_of(bucket, "a")
    bucket.delete("a")
    assert bucket.replace("a", "2", version=version) is None
    assert bucket.look("a") is None


def test_object_is_deleted_only_if_unchanged(tmp_path):
    bucket = open_bucket(tmp_path)
    bucket.write("a", "1")
    version = version_of(bucket, "a")
    bucket.write("a", "2")
    assert not bucket.delete("a", version=version)
    assert bucket.delete("a", version=version_of(bucket, "a"))
    assert bucket.look("a") is None


def test_of_many_writers_one_creates(tmp_path):
    bucket = open_bucket(tmp_path)
    start, won = threading.Barrier(8), []

    def create(writer):
        start.wait()
        if bucket.create("claim", str(writer)):
            won.append(writer)

    threads = [threading.Thread(target=create, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(writer).encode() for writer in won] == [bucket.read("claim")]


def test_fsspec_has_no_conditional_write():
    for change in (lambda of: of.replace("a", "2", version=b""), lambda of: of.delete("a", version=b"")):
        with pytest.raises(ConfigurationError, match="memory://x/a cannot be changed under a condition"):
            change(open_bucket("memory://x"))


def test_unknown_protocol_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="nowhere://a is on a storage that cannot be opened here"):
        open_bucket("nowhere://a")


def test_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/a: .*Not a directory"):
        open_bucket(tmp_path / "file").write("a", "1")


def test_relative_path_is_that_of_this_moment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_bucket("here").url == str(tmp_path / "here")


@pytest.mark.parametrize(("url", "local"), [("/a/b", True), ("a", True), ("gs://b/c", False), ("memory://a", False)])
def test_mounted_paths_are_local(url, local):
    assert is_local(url) is local
