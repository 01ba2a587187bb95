from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.trainer.data.parquet_files import write_groups
from tpujob_contract import ExitCode
from tpujob_trainer.data import DataConfig
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained
from tpujob_trainer.errors import NotFoundError


def find_files(path: str) -> tuple[DataRoot, list[DataFile]]:
    listing = list_source(DataConfig(path=path), "spec.trainer.data")
    return listing.root, listing.files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.parquet", "a.parquet", "deep/er/c.parquet", "_hidden.parquet", ".cache/d.parquet", "readme.md"):
        path = tmp_path / name
        if name.endswith(".md"):
            path.write_text("hello")
        else:
            write_groups(path, [["text"]])
    return tmp_path


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("", "", ["a.parquet", "b.parquet", "deep/er/c.parquet"]),
        ("b.parquet", "", ["b.parquet"]),
        ("*.parquet", "", ["a.parquet", "b.parquet"]),
        ("deep/*/c.parquet", "deep", ["er/c.parquet"]),
        ("**/[bc].parquet", "", ["b.parquet", "deep/er/c.parquet"]),
        ("_hidden.parquet", "", ["_hidden.parquet"]),
    ],
    ids=["folder", "file", "pattern", "pattern of folders", "pattern of levels", "hidden, but named"],
)
def test_path_means_these_files(folder, path, root, expected):
    found, files = find_files(str(folder / path))

    assert [file.path for file in files] == expected
    assert found.folder == str(folder / root)
    assert all(file.size == Path(found.locate(file.path)).stat().st_size for file in files)


def test_url_means_the_same_as_path(folder):
    _, by_path = find_files(str(folder))
    _, by_url = find_files(f"file://{folder}")

    assert by_path == by_url


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x/*.parquet", "'x/*.parquet' matches no file"),
        ("missing", "'missing' matches no file"),
        ("scan.pdf", "'scan.pdf' matches 1 file, 'scan.pdf' for one, but none is text or ends with .parquet"),
        ("strange://x", "'strange://x' is on a storage that is not supported"),
    ],
    ids=["pattern", "folder", "not parquet", "protocol"],
)
def test_path_without_data_is_refused(folder, monkeypatch, path, message):
    monkeypatch.chdir(folder)
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7")

    with pytest.raises(NotFoundError) as refused:
        find_files(path)

    assert str(refused.value).startswith(f"spec.trainer.data.path: {message}")
    assert refused.value.exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError("Forbidden: https://storage.googleapis.com/storage/v1/b/private/o"),
        type("HttpError", (Exception,), {"code": 401})("Anonymous caller does not have storage.objects.list access"),
    ],
    ids=["local", "gcs 403", "gcs 401"],
)
def test_no_permission_ends_the_run(error):
    with pytest.raises(NotFoundError, match=r"no permission to read 'gs://private'.*grant"), explained("gs://private"):
        raise error


def test_trouble_that_may_pass_is_left_alone():
    with pytest.raises(OSError, match="reset by peer"), explained("gs://bucket"):
        raise OSError("Connection reset by peer")
