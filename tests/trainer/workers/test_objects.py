import pytest

from tpujob_trainer.workers.objects import Objects


@pytest.fixture
def objects(tmp_path):
    return Objects(str(tmp_path))


def test_created_once(objects):
    assert objects.create("done/1.json", b"a") is not None
    assert objects.create("done/1.json", b"b") is None
    assert objects.read("done/1.json").content == b"a"


def test_same_content_counts_as_created(objects):
    """Its author asks again when the answer was lost."""
    objects.create("done/1.json", b"a")
    assert objects.create("done/1.json", b"a") is not None


def test_replaced_only_as_seen(objects):
    first = objects.create("x", b"1")
    second = objects.replace("x", b"2", first)
    assert second is not None
    assert objects.replace("x", b"3", first) is None
    assert objects.read("x").content == b"2"


def test_deleted_only_as_seen(objects):
    first = objects.create("x", b"1")
    second = objects.replace("x", b"2", first)
    assert not objects.delete("x", first)
    assert objects.delete("x", second)
    assert objects.read("x") is None


def test_names_of_one_folder(objects):
    for name in ("done/2.json", "done/1.json", "claims/1", "donf/1"):
        objects.create(name, b"")
    assert objects.names("done/") == ["done/1.json", "done/2.json"]
